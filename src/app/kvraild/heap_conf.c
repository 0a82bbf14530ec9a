/* heap_conf.c - how jemalloc is set for a server that runs for months; read by it before main. MALLOC_CONF in the environment wins. */
#include "app/kvraild/daemon.h"

/*
 * narenas: the threads that allocate are few (control thread, helpers); poll cores and the management core have arenas of their own.
 * background_thread, max_background_threads: memory goes back to the kernel from one thread that nobody waits for, not from whoever
 * happens to free. dirty_decay_ms, muzzy_decay_ms: five seconds after a burst of clients its memory is the kernel's again.
 */
const char *malloc_conf =
	"narenas:4,background_thread:true,max_background_threads:1,dirty_decay_ms:5000,muzzy_decay_ms:0";

const char *daemon_heap_conf(void)
{
	return malloc_conf;
}
