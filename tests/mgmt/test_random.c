/*
 * Random programs of several clients against a book of what must hold: which locks each session has, what has been
 * stored, what each request is answered. A failing seed is printed; the program is the same for the same seed.
 *
 * At the end nothing is held and L1 can be filled to the last slot (pitfalls D02).
 */
#include "mgmt/harness.h"

#include <stdio.h>
#include <string.h>

#include "base/random.h"

#define SESSIONS 8
#define CHAINS 4
#define CHUNKS 12
#define WORKERS 4
#define SCHEDULERS 2
#define SHARES 4u
#define HELD 12

static const struct model_of model = { .name = "tp2", .dtype = "fp8", .tenant = 1, .world_size = 2, .readers = 2 };

struct book_session {
	bool exists;
	unsigned chunk_count;
	int owner; /* index of the client, -1: none */
	uint8_t locks[CHUNKS];
};

struct party {
	struct client *client;
	struct handle *handle;
};

struct program {
	struct world world;
	struct random random;
	bool evicts; /* L1 is smaller than what is stored */
	struct party parties[WORKERS + SCHEDULERS];
	struct book_session sessions[SESSIONS];
	uint8_t stored[CHAINS][CHUNKS]; /* by seed and chunk: one bit a rank */
	struct ask *held[HELD];
	int held_party[HELD];
	unsigned steps, lookups, hits, retrieved;
};

static unsigned below(struct program *program, unsigned bound)
{
	return (unsigned)random_below(&program->random, bound);
}

/* Half of the chains share their first chunks with their neighbour. */
static struct chain chain_of(unsigned number)
{
	struct chain chain = { .seed = 1 + number };

	if (number % 2) {
		chain.fork = 5;
		chain.fork_seed = number;
	}
	return chain;
}

static uint8_t *stored_at(struct program *program, unsigned chain, unsigned chunk)
{
	struct chain names = chain_of(chain);

	return &program->stored[(chunk < names.fork ? names.fork_seed : names.seed) - 1][chunk];
}

static void session_name(char name[16], unsigned number)
{
	snprintf(name, 16, "session %u", number);
}

static void join(struct program *program, unsigned number)
{
	struct party *party = &program->parties[number];

	party->client = client_join(&program->world, 1);
	party->handle = handle_make(party->client, &model, number < WORKERS ? number / 2 : 0,
		number < WORKERS ? number % 2 : 0, number < WORKERS ? 4096 : 0);
	assert_int_equal(party->handle->registration.reply_status, STATUS_OK);
}

static void grown(struct program *program, unsigned session, unsigned chunks)
{
	struct book_session *book = &program->sessions[session];

	if (!book->exists) {
		memset(book, 0, sizeof(*book));
		book->exists = true;
		book->owner = -1;
	}
	if (chunks > book->chunk_count)
		book->chunk_count = chunks;
}

static unsigned expected_hits(struct program *program, unsigned chain, unsigned count)
{
	unsigned hits = 0;

	while (hits < count && *stored_at(program, chain, hits) == 3)
		hits++;
	return hits;
}

static void lookup(struct program *program, unsigned session)
{
	unsigned party = below(program, WORKERS + SCHEDULERS), count = 1 + below(program, CHUNKS), matched, possible;
	struct chain chain = chain_of(session % CHAINS);
	char name[16];

	session_name(name, session);
	matched = do_lookup(program->parties[party].handle, name, &chain, count, STATUS_OK);
	grown(program, session, count);
	/* Without a chunk count the whole known chain is looked at. */
	count = program->sessions[session].chunk_count;
	possible = expected_hits(program, session % CHAINS, count);
	if (program->evicts)
		assert_true(matched <= possible);
	else
		assert_int_equal(matched, possible);
	for (unsigned c = 0; c < CHUNKS; c++) {
		assert_true(c < matched || !program->evicts || c >= count || !program->sessions[session].locks[c] ||
			matched <= c);
		program->sessions[session].locks[c] = c < matched ? (1u << SHARES) - 1 : 0;
	}
	program->sessions[session].owner = (int)party;
	program->lookups++;
	program->hits += matched;
}

static void note_stored(struct program *program, const struct ask *ask, unsigned chain)
{
	for (uint32_t n = 0; n < ask->request.message.transfer.chunk_count; n++) {
		uint32_t chunk = ask->request.message.transfer.first_chunk + n;

		if (ask->outcomes[n] == CHUNK_STORED || ask->outcomes[n] == CHUNK_PRESENT)
			*stored_at(program, chain, chunk) |= (uint8_t)(1u << (ask->fill - 1));
	}
}

/* Retires a transfer that has been answered. */
static void settle_transfer(struct program *program, struct ask *ask, uint64_t locked_chunks)
{
	bool body = status_has_body(ask->request.reply.status);

	assert_true(ask->replied);
	if (body && ask->request.header.type == WIRE_STORE)
		note_stored(program, ask, (unsigned)(ask->chain.seed - 1));
	if (body && ask->request.header.type == WIRE_RETRIEVE)
		for (uint32_t n = 0; n < ask->request.message.transfer.chunk_count; n++) {
			if (locked_chunks >> n & 1)
				assert_int_not_equal(ask->outcomes[n], CHUNK_MISSING);
			program->retrieved += ask->outcomes[n] == CHUNK_DELIVERED;
		}
	ask_free(ask);
}

static void transfer(struct program *program, unsigned session, uint16_t type)
{
	unsigned party = below(program, WORKERS), first = below(program, CHUNKS),
		 count = 1 + below(program, CHUNKS - first);
	struct chain chain = chain_of(session % CHAINS);
	struct book_session *book = &program->sessions[session];
	unsigned slot = below(program, HELD);
	uint64_t locked = 0;
	struct ask *ask;
	char name[16];

	session_name(name, session);
	program->world.hold = !program->held[slot] && random_chance(&program->random, 1, 2);
	ask = ask_transfer(program->parties[party].handle, type, name, &chain, first, count);
	ask->fill = party / 2 + 1;
	world_run(&program->world);
	program->world.hold = false;
	grown(program, session, first + count);
	if (type == WIRE_RETRIEVE)
		for (unsigned n = 0; n < count; n++) {
			locked |= (uint64_t)(book->locks[first + n] >> party & 1) << n;
			book->locks[first + n] &= (uint8_t) ~(1u << party);
		}
	if (ask->out) {
		program->held[slot] = ask;
		program->held_party[slot] = (int)party;
	} else {
		settle_transfer(program, ask, locked);
	}
}

static void finish(struct program *program, unsigned slot)
{
	static const enum chunk_outcome ends[] = { CHUNK_STORED, CHUNK_STORED, CHUNK_FAILED, CHUNK_CANCELED };
	struct ask *ask = program->held[slot], *cancel = NULL;

	if (!ask)
		return;
	program->held[slot] = NULL;
	if (random_chance(&program->random, 1, 4)) {
		cancel = ask_cancel(program->parties[program->held_party[slot]].handle, ask);
		world_run(&program->world);
		assert_false(cancel->replied);
	}
	ask_finish(ask, ends[below(program, KVR_COUNT_OF(ends))]);
	world_run(&program->world);
	settle_transfer(program, ask, 0);
	if (cancel)
		ask_expect(cancel, STATUS_OK);
}

static void free_some(struct program *program, unsigned session)
{
	struct book_session *book = &program->sessions[session];
	unsigned first = below(program, CHUNKS), count = 1 + below(program, CHUNKS - first),
		 share = below(program, SHARES + 1);
	unsigned shares = share == SHARES ? (1u << SHARES) - 1 : 1u << share, expected = 0;
	uint16_t status = STATUS_OK;
	struct ask *ask;
	char name[16];

	session_name(name, session);
	ask = ask_free_locks(program->parties[below(program, WORKERS + SCHEDULERS)].handle, name, first, count,
		share == SHARES ? WIRE_ALL_RANKS : share / 2, share % 2);
	world_run(&program->world);
	if (!book->exists) {
		status = STATUS_UNKNOWN_SESSION;
	} else if (first + count > book->chunk_count) {
		status = STATUS_INVALID_RANGE;
	} else {
		for (unsigned c = first; c < first + count; c++) {
			expected += (unsigned)__builtin_popcount(book->locks[c] & shares);
			book->locks[c] &= (uint8_t)~shares;
		}
		if (!expected)
			status = STATUS_NO_LOCK;
	}
	assert_int_equal(ask_expect(ask, status), expected);
}

static void end(struct program *program, unsigned session)
{
	char name[16];

	session_name(name, session);
	do_end(program->parties[below(program, WORKERS + SCHEDULERS)].handle, name);
	memset(&program->sessions[session], 0, sizeof(program->sessions[session]));
}

static void wrong_chain(struct program *program, unsigned session)
{
	struct chain chain = chain_named(1000 + session);
	char name[16];

	session_name(name, session);
	if (program->sessions[session].exists)
		do_lookup(program->parties[below(program, 6)].handle, name, &chain, 3, STATUS_CHAIN_MISMATCH);
}

static void crash(struct program *program)
{
	unsigned number = below(program, WORKERS + SCHEDULERS);
	struct party *party = &program->parties[number];

	if (random_chance(&program->random, 1, 2))
		client_fail(party->client);
	else
		client_leave(party->client);
	world_run(&program->world);
	assert_true(party->client->detached);
	for (unsigned slot = 0; slot < HELD; slot++) {
		if (program->held[slot] && program->held_party[slot] == (int)number) {
			settle_transfer(program, program->held[slot], 0);
			program->held[slot] = NULL;
		}
	}
	for (unsigned s = 0; s < SESSIONS; s++) {
		struct book_session *book = &program->sessions[s];

		if (book->exists && book->owner == (int)number)
			memset(book, 0, sizeof(*book));
		for (unsigned c = 0; c < CHUNKS && number < WORKERS; c++)
			book->locks[c] &= (uint8_t) ~(1u << number);
	}
	client_free(party->client);
	join(program, number);
}

static void let_all_expire(struct program *program)
{
	for (unsigned slot = 0; slot < HELD; slot++)
		finish(program, slot);
	world_pass(&program->world, 310 * KVR_SECOND);
	assert_int_equal(world_locks(&program->world), 0);
	world_pass(&program->world, 310 * KVR_SECOND);
	assert_int_equal(world_sessions(&program->world), 0);
	memset(program->sessions, 0, sizeof(program->sessions));
}

static void check(struct program *program)
{
	uint64_t locks = 0;

	for (unsigned s = 0; s < SESSIONS; s++)
		for (unsigned c = 0; c < CHUNKS; c++)
			locks += (unsigned)__builtin_popcount(program->sessions[s].locks[c]);
	assert_int_equal(world_locks(&program->world), locks);
	if (program->steps % 40 == 0)
		world_verify(&program->world);
}

static void step(struct program *program)
{
	unsigned session = below(program, SESSIONS), choice = below(program, 1000);

	if (choice < 200)
		lookup(program, session);
	else if (choice < 400)
		transfer(program, session, WIRE_STORE);
	else if (choice < 600)
		transfer(program, session, WIRE_RETRIEVE);
	else if (choice < 750)
		finish(program, below(program, HELD));
	else if (choice < 850)
		free_some(program, session);
	else if (choice < 930)
		end(program, session);
	else if (choice < 960)
		wrong_chain(program, session);
	else if (choice < 995)
		crash(program);
	else
		let_all_expire(program);
	program->world.now += random_below(&program->random, 3 * KVR_MS);
	program->steps++;
	check(program);
}

static void run(uint64_t seed, bool evicts, unsigned steps)
{
	static struct program program;

	print_message("seed %llu, %s\n", (unsigned long long)seed, evicts ? "with eviction" : "without eviction");
	memset(&program, 0, sizeof(program));
	random_init(&program.random, seed);
	program.evicts = evicts;
	/* Two ranks' chunks of four chains, and as much again for what is being stored. */
	world_init(&program.world, &(struct world_options){ .slots = evicts ? 4 : 24 });
	for (unsigned n = 0; n < WORKERS + SCHEDULERS; n++)
		join(&program, n);
	for (unsigned n = 0; n < steps; n++)
		step(&program);
	for (unsigned slot = 0; slot < HELD; slot++)
		finish(&program, slot);
	assert_true(program.lookups > 0 && program.hits > 0 && program.retrieved > 0);
	world_fini(&program.world);
}

static void random_programs_keep_the_books_without_eviction(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++)
		run(seed, false, 1500);
}

static void random_programs_keep_the_books_with_eviction(void **state)
{
	(void)state;
	for (uint64_t seed = 101; seed <= 112; seed++)
		run(seed, true, 1500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_programs_keep_the_books_without_eviction),
		cmocka_unit_test(random_programs_keep_the_books_with_eviction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
