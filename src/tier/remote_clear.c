#include "tier/remote_clear.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#define SAY_INTERVAL_NS (10 * KVR_SECOND)

void remote_clear_begin(struct remote_clear *clear, struct remote *remote, struct l2_request *request)
{
	*clear = (struct remote_clear){ .request = request, .say_ns = remote->now_ns + SAY_INTERVAL_NS };
}

bool remote_clear_cut_short(const struct remote_clear *clear)
{
	return kvr_load_relaxed(&clear->request->status) == -ECANCELED;
}

bool remote_clear_has_more(const struct remote_clear *clear)
{
	return clear->found_next < clear->found_count && !remote_clear_cut_short(clear);
}

void remote_clear_keep(struct remote_clear *clear, int status)
{
	if (!clear->status)
		clear->status = status;
}

void remote_clear_say(struct remote_clear *clear, struct remote *remote)
{
	if (remote->now_ns < clear->say_ns)
		return;
	clear->say_ns = remote->now_ns + SAY_INTERVAL_NS;
	log_info("l2 %s: clear goes on: %llu objects removed so far", remote->adapter.name,
		(unsigned long long)clear->removed);
}

void remote_clear_end(struct remote_clear *clear, struct remote *remote)
{
	struct l2_request *request = clear->request;
	int status = remote_clear_cut_short(clear) ? -ECANCELED : clear->status;

	log_info("l2 %s: clear: %llu objects removed, %llu keys looked at%s%s", remote->adapter.name,
		(unsigned long long)clear->removed, (unsigned long long)clear->seen, status ? "; cut short: " : "",
		status ? strerror(-status) : "");
	clear->request = NULL;
	remote_end(remote, request, status, false);
}
