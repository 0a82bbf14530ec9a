/* main.c - kvraild: options, start, the control thread until a signal, and back. Exit codes: 0 good, 1 it failed, or left for a lost GPU,
 * 2 wrong usage. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app/common/program.h"
#include "app/kvraild/daemon.h"
#include "base/atomic.h"
#include "base/text.h"

/* The object: large, and still to be found when the server leaves without taking everything apart. */
static struct daemon the_daemon;

/* settings first: that is what the option table writes into. */
struct start {
	struct kvraild_settings settings;
	struct kvraild_plan plan;
};

static void on_signal(int number)
{
	kvr_fetch_add(number == SIGHUP ? &daemon_signals.reload : &daemon_signals.leave, 1);
}

static void take_signals(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	action.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &action, NULL);
}

static int check(void *settings, struct option_error *error)
{
	struct start *start = settings;

	log_set_level((enum log_level)start->settings.log_level);
	return kvraild_plan(&start->settings, &start->plan, error);
}

/* On standard output, whatever is logged: scripts wait for it. */
static void say_ready(const struct daemon *daemon)
{
	const struct kvraild_plan *plan = daemon->plan;
	uint32_t cores = kvraild_poll_cores(plan);
	char size[TEXT_SHORT], http[160] = "no http";

	if (daemon->http)
		daemon_http_url(daemon, http, sizeof(http));
	printf("kvraild " KVRAIL_VERSION " ready: %s of L1 in %s, %u poll core%s, %s%s%s%s, %s\n",
		text_size(size, daemon_l1_bytes(daemon)), l1_page_kind_text(daemon_l1_pages(daemon)), cores,
		cores == 1 ? "" : "s", plan->has_listen ? daemon->settings->listen : "",
		plan->has_listen && plan->has_socket ? ", " : "", plan->has_socket ? "unix:" : "",
		plan->has_socket ? plan->socket.path : "", http);
	fflush(stdout);
}

static int run(struct daemon *daemon)
{
	int error;

	take_signals();
	error = daemon_start(daemon);
	if (error == -EINTR)
		return PROGRAM_GOOD;
	if (error)
		return PROGRAM_FAILED;
	say_ready(daemon);
	loop_run_here(daemon->control_loop, &daemon->stop);
	daemon_finish(daemon);
	log_info("kvraild has left");
	return daemon->lost_gpu ? PROGRAM_FAILED : PROGRAM_GOOD;
}

int main(int argc, char **argv)
{
	struct start start;
	int code;

	memset(&start, 0, sizeof(start));
	code = program_begin(&kvraild_options, &argc, argv, &start.settings, check);
	if (code == PROGRAM_RUN && argc > 1) {
		fprintf(stderr, "kvraild: \"%s\" is no option; kvraild --help lists all\n", argv[1]);
		code = PROGRAM_USAGE;
	}
	if (code == PROGRAM_RUN) {
		the_daemon.settings = &start.settings;
		the_daemon.plan = &start.plan;
		code = run(&the_daemon);
	}
	explicit_bzero(&start.plan, sizeof(start.plan));
	option_fini(&kvraild_options, &start.settings);
	return code;
}
