/* The pages stepped by hand: time, the management core's silence, and missing resources are the test's. */
#include "app/process.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "mgmt/http.h"
#include "mgmt/server.h"
#include "mgmt/status_page.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define L1_BYTES ((size_t)4 << 20)

struct rig {
	struct verbs_device *device;
	struct l1_area area;
	struct server *server;
	struct control_tenant tenant;
	struct loop *loop;
	struct status_sources sources;
	struct http *http;
	uint64_t now_ns;
	const char *not_ready;
};

static bool no_step(void *context, uint64_t now_ns)
{
	(void)context;
	(void)now_ns;
	return false;
}

static const char *rig_not_ready(void *context, uint64_t now_ns)
{
	(void)now_ns;
	return ((struct rig *)context)->not_ready;
}

static void rig_server(struct rig *rig)
{
	struct verbs_open open;
	struct server_options options;
	struct loop_options loop;

	memset(&open, 0, sizeof(open));
	open.server = true;
	assert_int_equal(verbs_local.open(&open, &rig->device), 0);
	rig->area.address = mmap(NULL, L1_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(rig->area.address, MAP_FAILED);
	rig->area.bytes = L1_BYTES;
	rig->area.numa_node = -1;
	text_copy(rig->tenant.name, sizeof(rig->tenant.name), "default");
	server_options_default(&options);
	options.devices[0] = rig->device;
	options.worker_count = 1;
	options.areas = &rig->area;
	options.area_count = 1;
	options.connections_max = 2;
	options.credits = 4;
	options.chunks_initial = 64;
	options.sessions_max = 16;
	options.chain_chunks_max = 4096;
	options.helper_threads = 0;
	options.boot_id = 0xabc;
	options.tenants = &rig->tenant;
	options.tenant_count = 1;
	assert_int_equal(server_create(&options, &rig->server), 0);
	memset(&loop, 0, sizeof(loop));
	strcpy(loop.name, "a \"loop\"\\");
	loop.parts[0] = (struct loop_part){ NULL, no_step, NULL, NULL, NULL, -1 };
	loop.part_count = 1;
	loop.core = -1;
	assert_int_equal(loop_create(&loop, &rig->loop), 0);
}

static void rig_sources(struct rig *rig)
{
	rig->sources.version = "1.2.3";
	rig->sources.boot_id = server_boot_id(rig->server);
	rig->sources.started_ns = rig->now_ns;
	rig->sources.control = server_control(rig->server);
	rig->sources.control_counters = control_counters(rig->sources.control);
	rig->sources.management = management_counters(server_management(rig->server));
	rig->sources.cache = cache_get_counters(server_cache(rig->server));
	rig->sources.worker_count = 1;
	rig->sources.workers[0].counters = worker_counters(server_worker(rig->server, 0));
	rig->sources.workers[0].device = "local";
	rig->sources.loop_count = 1;
	rig->sources.loops[0] = rig->loop;
	rig->sources.tenants = &rig->tenant;
	rig->sources.tenant_count = 1;
	rig->sources.connections_max = 2;
	rig->sources.chunk_tokens = 256;
	rig->sources.l1_pages = "4 KiB pages";
	rig->sources.options_json = "{}";
}

static int rig_http(struct rig *rig)
{
	struct http_options options;
	int error;

	memset(&options, 0, sizeof(options));
	error = http_listen("127.0.0.1:0", &options.listen_fd);
	if (error)
		return error;
	options.token = "sesame";
	options.control = server_control(rig->server);
	options.sources = &rig->sources;
	options.not_ready = rig_not_ready;
	options.context = rig;
	return http_create(&options, &rig->http);
}

static int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig->now_ns = 1000 * KVR_SECOND;
	rig_server(rig);
	rig_sources(rig);
	assert_int_equal(rig_http(rig), 0);
	*state = rig;
	return 0;
}

static int rig_teardown(void **state)
{
	struct rig *rig = *state;

	http_destroy(&rig->http);
	assert_null(rig->http);
	http_destroy(&rig->http);
	loop_destroy(&rig->loop);
	server_destroy(&rig->server);
	rig->device->driver->close(rig->device);
	munmap(rig->area.address, L1_BYTES);
	free(rig);
	return 0;
}

/* A request on its way; what has come back so far. */
struct asking {
	int fd;
	struct text answer;
	bool ended;
};

static void ask(struct rig *rig, struct asking *asking, const char *request)
{
	struct sockaddr_in address;

	memset(asking, 0, sizeof(*asking));
	asking->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_port = htons(http_port(rig->http));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(asking->fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(send(asking->fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
}

static void take(struct asking *asking)
{
	char bytes[4096];
	ssize_t count;

	while ((count = recv(asking->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		text_append_bytes(&asking->answer, bytes, (size_t)count);
	asking->ended |= count == 0;
}

static void close_asking(struct asking *asking)
{
	close(asking->fd);
	text_fini(&asking->answer);
}

#define GET(path) "GET " path " HTTP/1.0\r\n\r\n"
#define CLEAR "POST /clear HTTP/1.0\r\nAuthorization: Bearer sesame\r\nContent-Length: 0\r\n\r\n"

/* Steps the pages, and the server too when it is to answer, until the answer is there. */
static void await_answer(struct rig *rig, struct asking *asking, bool server_answers)
{
	for (unsigned turn = 0; turn < 1000000 && !asking->ended; turn++) {
		http_slept(rig->http);
		http_step(rig->http, rig->now_ns);
		if (server_answers)
			server_step(rig->server, rig->now_ns);
		take(asking);
	}
	assert_true(asking->ended);
}

/* Steps the pages alone, in standing time, often enough for a request to be taken in. */
static void step_pages(struct rig *rig)
{
	for (unsigned turn = 0; turn < 2000; turn++) {
		http_slept(rig->http);
		http_step(rig->http, rig->now_ns);
	}
}

static void a_page_comes_when_the_management_core_has_answered(void **state)
{
	struct rig *rig = *state;
	struct asking asking;

	ask(rig, &asking, GET("/status"));
	step_pages(rig);
	take(&asking);
	assert_false(asking.ended);
	assert_int_equal(http_next_ns(rig->http), rig->now_ns + HTTP_WAIT_NS);
	await_answer(rig, &asking, true);
	assert_non_null(strstr(asking.answer.bytes, "HTTP/1.1 200"));
	assert_non_null(strstr(asking.answer.bytes, "\"boot_id\":\"0000000000000abc\""));
	close_asking(&asking);
}

static void requests_that_never_end_keep_nobody_out(void **state)
{
	struct asking halves[2 * HTTP_CONNECTIONS_MAX], health;
	struct rig *rig = *state;

	for (unsigned i = 0; i < KVR_COUNT_OF(halves); i++) {
		ask(rig, &halves[i], "GET /healthz HTTP/1.1\r\nHost: loc");
		step_pages(rig);
	}
	ask(rig, &health, GET("/healthz"));
	await_answer(rig, &health, false);
	assert_non_null(strstr(health.answer.bytes, "HTTP/1.1 200"));
	close_asking(&health);
	/* The one that was there first made room first. */
	take(&halves[0]);
	assert_true(halves[0].ended);
	take(&halves[KVR_COUNT_OF(halves) - 1]);
	assert_false(halves[KVR_COUNT_OF(halves) - 1].ended);
	for (unsigned i = 0; i < KVR_COUNT_OF(halves); i++)
		close_asking(&halves[i]);
}

/* As the loop does it: it sleeps when nothing was done, nothing is due and nothing has come. */
static bool would_sleep(struct rig *rig)
{
	struct pollfd readable = { .fd = http_fd(rig->http), .events = POLLIN };

	if (poll(&readable, 1, 0) > 0)
		http_slept(rig->http);
	return !http_step(rig->http, rig->now_ns) && http_next_ns(rig->http) > rig->now_ns &&
		poll(&readable, 1, 0) == 0;
}

/* Hanging up on one and letting the next in is one piece of work; /healthz behind a thousand would come seconds late. */
static void a_crowd_that_says_nothing_is_let_in_without_a_pause(void **state)
{
	struct asking crowd[6 * HTTP_CONNECTIONS_MAX], health;
	struct rig *rig = *state;

	for (unsigned i = 0; i < KVR_COUNT_OF(crowd); i++)
		ask(rig, &crowd[i], "G");
	ask(rig, &health, GET("/healthz"));
	while (!would_sleep(rig))
		;
	take(&health);
	assert_true(health.ended);
	assert_non_null(strstr(health.answer.bytes, "HTTP/1.1 200"));
	close_asking(&health);
	for (unsigned i = 0; i < KVR_COUNT_OF(crowd); i++)
		close_asking(&crowd[i]);
}

static void a_request_that_comes_a_byte_at_a_time_has_no_longer_than_any_other(void **state)
{
	struct rig *rig = *state;
	struct asking slow;

	ask(rig, &slow, "GET /heal");
	for (unsigned second = 0; second < 9; second++) {
		step_pages(rig);
		rig->now_ns += KVR_SECOND;
		assert_int_equal(send(slow.fd, "t", 1, MSG_NOSIGNAL), 1);
		take(&slow);
		assert_false(slow.ended);
	}
	rig->now_ns += KVR_SECOND;
	await_answer(rig, &slow, false);
	assert_int_equal(slow.answer.length, 0);
	close_asking(&slow);
}

static void a_connection_that_asks_again_and_again_is_kept(void **state)
{
	struct rig *rig = *state;
	struct asking kept;

	ask(rig, &kept, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
	for (unsigned second = 0; second < 30; second += 5) {
		step_pages(rig);
		take(&kept);
		assert_false(kept.ended);
		rig->now_ns += 5 * KVR_SECOND;
		assert_true(send(kept.fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 42, MSG_NOSIGNAL) > 0);
	}
	close_asking(&kept);
}

static void a_connection_that_finds_no_memory_for_its_book_is_served(void **state)
{
	struct rig *rig = *state;
	struct asking health;

	fault_arm_name("http/peer", 1);
	ask(rig, &health, GET("/healthz"));
	await_answer(rig, &health, false);
	assert_string_equal(fault_fired(), "http/peer");
	fault_arm(0);
	assert_non_null(strstr(health.answer.bytes, "HTTP/1.1 200"));
	close_asking(&health);
}

/* pitfalls C01, O04: the core is silent; the page says so in time, and nothing else waits for it. */
static void a_silent_management_core_makes_503_in_time(void **state)
{
	struct rig *rig = *state;
	struct asking status, metrics, health;

	rig->not_ready = "thread kvr-mgmt has made no turn for 6.0 s";
	ask(rig, &status, GET("/status"));
	ask(rig, &metrics, GET("/metrics"));
	step_pages(rig);
	rig->now_ns += HTTP_WAIT_NS - 1;
	step_pages(rig);
	take(&status);
	assert_false(status.ended);
	ask(rig, &health, GET("/healthz"));
	await_answer(rig, &health, false);
	assert_non_null(strstr(health.answer.bytes, "HTTP/1.1 200"));
	rig->now_ns++;
	await_answer(rig, &status, false);
	await_answer(rig, &metrics, false);
	assert_non_null(strstr(status.answer.bytes, "HTTP/1.1 503"));
	assert_non_null(strstr(status.answer.bytes,
		"the management core has not answered within 2 s: thread kvr-mgmt has made no turn for 6.0 s\n"));
	assert_non_null(strstr(metrics.answer.bytes, "HTTP/1.1 503"));
	close_asking(&status);
	close_asking(&metrics);
	close_asking(&health);
	/* It wakes up: what it owes goes nowhere, and new questions are answered. */
	rig->not_ready = NULL;
	ask(rig, &status, GET("/status"));
	await_answer(rig, &status, true);
	assert_non_null(strstr(status.answer.bytes, "HTTP/1.1 200"));
	close_asking(&status);
}

static void readiness_says_why_not(void **state)
{
	struct rig *rig = *state;
	struct asking asking;

	rig->not_ready = "draining";
	ask(rig, &asking, GET("/readyz"));
	await_answer(rig, &asking, false);
	assert_non_null(strstr(asking.answer.bytes, "HTTP/1.1 503"));
	assert_non_null(strstr(asking.answer.bytes, "\r\n\r\nnot ready: draining\n"));
	close_asking(&asking);
	/* Liveness is another matter. */
	ask(rig, &asking, GET("/healthz"));
	await_answer(rig, &asking, false);
	assert_non_null(strstr(asking.answer.bytes, "HTTP/1.1 200"));
	close_asking(&asking);
}

static void one_clear_at_a_time(void **state)
{
	struct rig *rig = *state;
	struct asking first, second;

	ask(rig, &first, CLEAR);
	step_pages(rig);
	ask(rig, &second, CLEAR);
	await_answer(rig, &second, false);
	assert_non_null(strstr(second.answer.bytes, "HTTP/1.1 409"));
	await_answer(rig, &first, true);
	assert_non_null(strstr(first.answer.bytes, "{\"dropped\":0,\"kept\":0,\"tiers\":\"L1\",\"l2_failed\":0}"));
	close_asking(&first);
	close_asking(&second);
}

/* Who asked has been told 503, or has hung up; the answer that comes later finds nobody, and the next clear works. */
static void a_clear_that_comes_late_finds_nobody(void **state)
{
	struct rig *rig = *state;
	struct asking asking;

	ask(rig, &asking, CLEAR);
	step_pages(rig);
	rig->now_ns += HTTP_WAIT_NS;
	await_answer(rig, &asking, false);
	assert_non_null(strstr(asking.answer.bytes, "HTTP/1.1 503"));
	close_asking(&asking);
	for (unsigned i = 0; i < 100; i++)
		server_step(rig->server, rig->now_ns);
	ask(rig, &asking, CLEAR);
	await_answer(rig, &asking, true);
	assert_non_null(strstr(asking.answer.bytes, "HTTP/1.1 200"));
	close_asking(&asking);
}

static void pages_may_end_while_somebody_waits(void **state)
{
	struct rig *rig = *state;
	struct asking status, clear, gone;

	ask(rig, &status, GET("/status"));
	ask(rig, &clear, CLEAR);
	ask(rig, &gone, GET("/metrics"));
	step_pages(rig);
	close_asking(&gone);
	step_pages(rig);
	http_destroy(&rig->http);
	take(&status);
	close_asking(&status);
	close_asking(&clear);
	/* What was asked for is answered while its memory is still there, in kvraild by stopping the threads first. Here it never is. */
	assert_int_equal(rig_http(rig), 0);
}

static void many_at_once_are_all_answered(void **state)
{
	struct rig *rig = *state;
	struct asking asking[20];

	for (unsigned i = 0; i < 20; i++)
		ask(rig, &asking[i], i % 2 ? GET("/status") : GET("/metrics"));
	for (unsigned i = 0; i < 20; i++) {
		await_answer(rig, &asking[i], true);
		assert_non_null(strstr(asking[i].answer.bytes, "HTTP/1.1 200"));
		close_asking(&asking[i]);
	}
}

static void labels_are_escaped_as_the_text_format_asks(void **state)
{
	struct rig *rig = *state;
	struct status_snapshot snapshot;
	struct text page = { NULL, 0, 0, false };

	memset(&snapshot, 0, sizeof(snapshot));
	snapshot.model_count = 2;
	strcpy(snapshot.model[0].key, "0123456789abcdef");
	strcpy(snapshot.model[1].key, "123456789abcdef0");
	/* A client's name in Latin 1, and half a character at its end. */
	strcpy(snapshot.model[1].name, "caf\xe9 caf\xc3\xa9 \xe2\x82");
	strcpy(snapshot.model[0].name, "a\"b\\c\nd");
	strcpy(snapshot.model[0].dtype, "bf16");
	snapshot.model[0].world_size = 2;
	snapshot.model[0].token_bytes = 1000;
	snapshot.model[0].chunks = 3;
	snapshot.l1.total_bytes = 1000000;
	status_page_metrics(&rig->sources, &snapshot, NULL, rig->now_ns + 1500 * KVR_MS, &page);
	assert_non_null(strstr(page.bytes,
		"\nkvrail_model_chunks{model=\"a\\\"b\\\\c\\nd\",dtype=\"bf16\",tenant=\"default\",key=\"0123456789abcdef\","
		"world_size=\"2\"} 3\n"));
	assert_non_null(strstr(page.bytes,
		"\nkvrail_model_chunks{model=\"caf\xef\xbf\xbd caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\",dtype=\"\","
		"tenant=\"default\",key=\"123456789abcdef0\",world_size=\"0\"} 0\n"));
	/* pitfalls O09: 1000 bytes a rank, two ranks. */
	assert_non_null(strstr(page.bytes, "world_size=\"2\"} 500\n"));
	assert_non_null(strstr(page.bytes, "\nkvrail_loop_busy_turns_total{loop=\"a \\\"loop\\\"\\\\\"} 0\n"));
	assert_non_null(strstr(page.bytes, "\nkvrail_uptime_seconds 1.500000000\n"));
	text_fini(&page);
}

static void tokens_that_fit_follow_from_the_layout(void **state)
{
	struct status_model model;

	(void)state;
	memset(&model, 0, sizeof(model));
	assert_int_equal(status_model_tokens(&model, 1 << 30), 0);
	/* llama3-8b in 16 bits: 32 layers, 8 heads of 128, keys and values. */
	model.token_bytes = 2 * 2 * 32 * 8 * 128;
	model.world_size = 1;
	assert_int_equal(status_model_tokens(&model, UINT64_C(1) << 30), 8192);
	/* llama3-70b over 8 ranks: 80 layers, one head each. */
	model.token_bytes = 2 * 2 * 80 * 128;
	model.world_size = 8;
	assert_int_equal(status_model_tokens(&model, UINT64_C(1) << 30), 3276);
}

#define ASK(path, more) "POST " path " HTTP/1.0\r\nAuthorization: Bearer sesame\r\n" more
#define DIGEST "0123456789abcdef0123456789abcdef"
#define PIN ASK("/pin?name=p&model=m", "Content-Length: 64\r\n\r\n" DIGEST DIGEST)

static void expect(struct rig *rig, const char *request, bool server_answers, const char *status, const char *words)
{
	struct asking asking;

	ask(rig, &asking, request);
	await_answer(rig, &asking, server_answers);
	if (!asking.answer.bytes || !strstr(asking.answer.bytes, status) || !strstr(asking.answer.bytes, words))
		fail_msg("%s and %s are not in: %s", status, words, asking.answer.bytes ? asking.answer.bytes : "");
	close_asking(&asking);
}

static void what_changes_something_says_what_is_wrong_with_it(void **state)
{
	struct rig *rig = *state;

	expect(rig, ASK("/quota?quota=1GiB:2GiB", "\r\n"), true, " 200 ", "\"hard_bytes\":2147483648");
	expect(rig, ASK("/quota?quota=default", "\r\n"), true, " 200 ", "\"hard_bytes\":0");
	expect(rig, ASK("/quota", "\r\n"), true, " 400 ", "write SOFT:HARD");
	expect(rig, ASK("/quota?tenant=nobody&quota=1GiB:2GiB", "\r\n"), true, " 404 ", "no tenant \"nobody\"");
	expect(rig, ASK("/unpin", "\r\n"), true, " 400 ", "give its name");
	expect(rig, ASK("/unpin?name=" DIGEST DIGEST, "\r\n"), true, " 400 ", "more than 63 characters");
	expect(rig, ASK("/pin?name=p&model=m", "Content-Length: 32\r\n\r\n" DIGEST), true, " 400 ", "32 bytes each");
	expect(rig, ASK("/pin?name=p&model=m", "Content-Length: 65\r\n\r\n" DIGEST DIGEST "x"), true, " 400 ",
		"32 bytes each");
	expect(rig, ASK("/pin?name=p", "Content-Length: 64\r\n\r\n" DIGEST DIGEST), true, " 400 ",
		"a name and a model");
	expect(rig, PIN, true, " 409 ", "the tenant has no model of that name");
	expect(rig, "POST /pin?name=p&model=m HTTP/1.0\r\nContent-Length: 64\r\n\r\n" DIGEST DIGEST, true, " 401 ",
		"Bearer");
}

/* Nobody may have the server keep more than a prefix can have. */
static void a_body_that_is_too_long_is_cut_off(void **state)
{
	struct text request = { NULL, 0, 0, false };
	struct rig *rig = *state;
	struct asking asking;

	text_append(&request, ASK("/pin?name=p&model=m", "Content-Length: 200000\r\n\r\n"));
	while (request.length < 160000)
		text_append(&request, DIGEST);
	ask(rig, &asking, request.bytes);
	await_answer(rig, &asking, true);
	assert_true(!asking.answer.bytes || !strstr(asking.answer.bytes, " 200 "));
	close_asking(&asking);
	text_fini(&request);
	expect(rig, PIN, true, " 409 ", "no model of that name");
}

static void a_pin_that_comes_late_or_never_leaks_nothing(void **state)
{
	struct rig *rig = *state;
	struct asking asking;

	ask(rig, &asking, PIN);
	step_pages(rig);
	expect(rig, ASK("/quota?quota=none:1GiB", "\r\n"), false, " 409 ", "another pin is under way");
	rig->now_ns += HTTP_WAIT_NS;
	await_answer(rig, &asking, false);
	assert_non_null(strstr(asking.answer.bytes, "HTTP/1.1 503"));
	close_asking(&asking);
	for (unsigned i = 0; i < 100; i++)
		server_step(rig->server, rig->now_ns);
	ask(rig, &asking, PIN);
	step_pages(rig);
	/* The pages end, and the management core does not run any more. */
	http_destroy(&rig->http);
	close_asking(&asking);
}

static void pins_and_jobs_that_have_no_memory_are_refused(void **state)
{
	static const char *const points[] = { "http/body", "http/pin", "control_request/object" };
	struct rig *rig = *state;

	for (size_t i = 0; i < KVR_COUNT_OF(points); i++) {
		struct asking asking;

		fault_arm_name(points[i], 1);
		ask(rig, &asking, PIN);
		await_answer(rig, &asking, true);
		assert_string_equal(fault_fired(), points[i]);
		fault_arm(0);
		assert_true(!asking.answer.bytes || !strstr(asking.answer.bytes, " 200 "));
		close_asking(&asking);
		expect(rig, PIN, true, " 409 ", "no model of that name");
	}
}

static void whatever_cannot_be_had_leaves_no_pages_and_no_leak(void **state)
{
	struct rig *rig = *state;
	unsigned failures = 0;

	http_destroy(&rig->http);
	for (unsigned n = 1;; n++) {
		int error;

		fault_arm(n);
		error = rig_http(rig);
		if (!fault_fired()) {
			assert_int_equal(error, 0);
			break;
		}
		assert_true(error < 0);
		assert_null(rig->http);
		failures++;
	}
	fault_arm(0);
	assert_true(failures >= 3);
}

/* A request that finds no memory is closed, the next one is served. */
static void a_request_without_memory_is_closed(void **state)
{
	static const char *const points[] = { "http/request", "http/answer" };
	struct rig *rig = *state;

	for (size_t i = 0; i < KVR_COUNT_OF(points); i++) {
		struct asking asking;

		fault_arm_name(points[i], 1);
		ask(rig, &asking, GET("/healthz"));
		await_answer(rig, &asking, false);
		assert_string_equal(fault_fired(), points[i]);
		assert_int_equal(asking.answer.length, 0);
		close_asking(&asking);
		fault_arm(0);
		ask(rig, &asking, GET("/healthz"));
		await_answer(rig, &asking, false);
		assert_non_null(strstr(asking.answer.bytes, "HTTP/1.1 200"));
		close_asking(&asking);
	}
}

static void addresses_are_host_and_port(void **state)
{
	(void)state;
	assert_true(http_address_good("127.0.0.1:9464"));
	assert_true(http_address_good("[::1]:0"));
	assert_true(http_address_good("localhost:1"));
	assert_false(http_address_good(""));
	assert_false(http_address_good("127.0.0.1"));
	assert_false(http_address_good(":9464"));
	assert_false(http_address_good("127.0.0.1:"));
	assert_false(http_address_good("127.0.0.1:65536"));
	assert_false(http_address_good("127.0.0.1:x"));
	assert_false(http_address_good("http://127.0.0.1:9464"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
		RIGGED(a_page_comes_when_the_management_core_has_answered),
		RIGGED(requests_that_never_end_keep_nobody_out),
		RIGGED(a_crowd_that_says_nothing_is_let_in_without_a_pause),
		RIGGED(a_request_that_comes_a_byte_at_a_time_has_no_longer_than_any_other),
		RIGGED(a_connection_that_asks_again_and_again_is_kept),
		RIGGED(a_connection_that_finds_no_memory_for_its_book_is_served),
		RIGGED(a_silent_management_core_makes_503_in_time),
		RIGGED(readiness_says_why_not),
		RIGGED(one_clear_at_a_time),
		RIGGED(a_clear_that_comes_late_finds_nobody),
		RIGGED(pages_may_end_while_somebody_waits),
		RIGGED(many_at_once_are_all_answered),
		RIGGED(labels_are_escaped_as_the_text_format_asks),
		RIGGED(whatever_cannot_be_had_leaves_no_pages_and_no_leak),
		RIGGED(a_request_without_memory_is_closed),
		RIGGED(what_changes_something_says_what_is_wrong_with_it),
		RIGGED(a_body_that_is_too_long_is_cut_off),
		RIGGED(a_pin_that_comes_late_or_never_leaks_nothing),
		RIGGED(pins_and_jobs_that_have_no_memory_are_refused),
		cmocka_unit_test(tokens_that_fit_follow_from_the_layout),
		cmocka_unit_test(addresses_are_host_and_port),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
