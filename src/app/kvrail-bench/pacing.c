#include "app/kvrail-bench/pacing.h"

#include <math.h>

/* 0 < part <= 1 */
static double random_part(struct random *random)
{
	return ((double)(random_next(random) >> 11) + 1) / 9007199254740992.0;
}

static double gap(struct pacing *pacing)
{
	return pacing->even ? pacing->gap_ns : -log(random_part(&pacing->random)) * pacing->gap_ns;
}

void pacing_init(struct pacing *pacing, double rate, bool even, uint64_t seed)
{
	*pacing = (struct pacing){ .gap_ns = 1e9 / rate, .even = even };
	random_init(&pacing->random, seed);
}

void pacing_start(struct pacing *pacing, uint64_t now_ns)
{
	pacing->due_ns = (double)now_ns + (pacing->even ? random_part(&pacing->random) * pacing->gap_ns : gap(pacing));
}

void pacing_advance(struct pacing *pacing)
{
	pacing->due_ns += gap(pacing);
}
