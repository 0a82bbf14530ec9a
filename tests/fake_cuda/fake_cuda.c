/* fake_cuda.c - see fake_cuda.h. */
#include "fake_cuda/fake_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/pattern.h"
#include "gpu/driver.h"

#define MEMORIES 512
#define OPERATIONS 4096
#define SYMBOLS 64
#define BULK 5u    /* function: kvrail_copy_bulk */
#define BROKEN 700 /* CUDA_ERROR_ILLEGAL_ADDRESS */

enum kind { FREE, ALLOCATED, MAPPED, PINNED, REGISTERED };

struct memory {
	enum kind kind;
	uint64_t address;
	uint64_t bytes;
	int fd;
	int device;
	int users;       /* MAPPED: opens of the same handle */
	uint64_t serial; /* ALLOCATED: no two are alike */
	char handle[64];
};

struct symbol {
	char name[48];
	unsigned calls;
	int fail_code;
	unsigned fail_times;
	bool blocked;
};

enum operation_kind { COPY_LIST, COPY, WRITE_VALUE, WAIT_VALUE, FILL, CHECK, WORK };

struct operation {
	enum operation_kind kind;
	int stream;
	uint64_t word[10];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t news;
	bool started, thread_started, held;
	int broken;
	int gpus;
	unsigned launch_us, bulk_bytes;
	unsigned break_after, lists; /* copy lists until the context breaks; 0: it does not; carried out */
	struct memory memory[MEMORIES];
	uint64_t serial;
	struct symbol symbols[SYMBOLS];
	struct operation operations[OPERATIONS]; /* of all streams, in order */
	uint64_t first, last;
	uint64_t done_of[64], last_of[64]; /* by stream */
	int streams;
	pthread_t thread;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER };

static __thread gpu_context current[8];
static __thread int depth;

/* ---- calls are counted, and can be made to fail or to block ----------------------------------------------------- */

static struct symbol *symbol_of(const char *name)
{
	for (int i = 0; i < SYMBOLS; i++) {
		struct symbol *symbol = &fake.symbols[i];

		if (symbol->name[0] == '\0')
			snprintf(symbol->name, sizeof(symbol->name), "%s", name);
		if (strcmp(symbol->name, name) == 0)
			return symbol;
	}
	abort();
}

/* Takes the lock. Whether the call is to fail. */
static int enter(const char *name)
{
	struct symbol *symbol;
	int code;

	pthread_mutex_lock(&fake.lock);
	symbol = symbol_of(name);
	symbol->calls++;
	while (symbol->blocked)
		pthread_cond_wait(&fake.news, &fake.lock);
	code = fake.broken;
	if (symbol->fail_times > 0) {
		symbol->fail_times--;
		code = symbol->fail_code;
	}
	return code;
}

static int leave(int code)
{
	pthread_mutex_unlock(&fake.lock);
	return code;
}

static void control_hold(bool on)
{
	pthread_mutex_lock(&fake.lock);
	fake.held = on;
	pthread_cond_broadcast(&fake.news);
	pthread_mutex_unlock(&fake.lock);
}

static void control_fail(const char *name, int code, unsigned times)
{
	pthread_mutex_lock(&fake.lock);
	symbol_of(name)->fail_code = code;
	symbol_of(name)->fail_times = times;
	pthread_mutex_unlock(&fake.lock);
}

static void control_block(const char *name, bool on)
{
	pthread_mutex_lock(&fake.lock);
	symbol_of(name)->blocked = on;
	pthread_cond_broadcast(&fake.news);
	pthread_mutex_unlock(&fake.lock);
}

static void control_break(int code)
{
	pthread_mutex_lock(&fake.lock);
	fake.broken = code;
	if (code == 0) { /* as new: what was under way is forgotten */
		fake.first = fake.last;
		memcpy(fake.done_of, fake.last_of, sizeof(fake.done_of));
	}
	pthread_mutex_unlock(&fake.lock);
}

static unsigned control_calls(const char *name)
{
	unsigned calls;

	pthread_mutex_lock(&fake.lock);
	calls = symbol_of(name)->calls;
	pthread_mutex_unlock(&fake.lock);
	return calls;
}

static unsigned control_mapped(void)
{
	unsigned count = 0;

	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < MEMORIES; i++)
		count += fake.memory[i].kind == MAPPED;
	pthread_mutex_unlock(&fake.lock);
	return count;
}

const struct fake_cuda_control *fake_cuda_control(void);
const struct fake_cuda_control *fake_cuda_control(void)
{
	static const struct fake_cuda_control control = { control_hold, control_fail, control_block, control_break,
		control_calls, control_mapped };

	return &control;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static struct memory *find(uint64_t address, uint64_t bytes, bool device)
{
	for (int i = 0; i < MEMORIES; i++) {
		struct memory *memory = &fake.memory[i];
		bool is_device = memory->kind == ALLOCATED || memory->kind == MAPPED;

		if (memory->kind != FREE && is_device == device && address >= memory->address &&
			bytes <= memory->bytes && address - memory->address <= memory->bytes - bytes)
			return memory;
	}
	return NULL;
}

/* A range may go over two slices that were registered one behind the other. */
static bool reachable(uint64_t address, uint64_t bytes)
{
	while (bytes > 0) {
		const struct memory *memory = find(address, 1, false);
		uint64_t part;

		if (!memory)
			memory = find(address, 1, true);
		if (!memory)
			return false;
		part = memory->address + memory->bytes - address;
		if (part >= bytes)
			return true;
		address += part;
		bytes -= part;
	}
	return true;
}

static struct memory *new_memory(enum kind kind, uint64_t address, uint64_t bytes, int fd)
{
	for (int i = 0; i < MEMORIES; i++) {
		struct memory *memory = &fake.memory[i];

		if (memory->kind != FREE)
			continue;
		memset(memory, 0, sizeof(*memory));
		memory->kind = kind;
		memory->address = address;
		memory->bytes = bytes;
		memory->fd = fd;
		memory->users = 1;
		return memory;
	}
	abort();
}

static int unmap(struct memory *memory)
{
	munmap((void *)(uintptr_t)memory->address, memory->bytes);
	if (memory->fd >= 0)
		close(memory->fd);
	memory->kind = FREE;
	return 0;
}

/* ---- the thread that does what streams ask ---------------------------------------------------------------------- */

struct piece { /* of copy.cu */
	uint64_t to, from;
	uint32_t bytes, pad[3];
};

static void do_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
	if (!reachable(to, bytes) || !reachable(from, bytes))
		fake.broken = BROKEN;
	else
		memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
}

static void do_list(const uint64_t *word)
{
	const struct piece *ring = (const struct piece *)(uintptr_t)word[0];

	if (!reachable(word[0], (word[2] + 1) * sizeof(*ring)))
		fake.broken = BROKEN;
	for (uint64_t i = 0; i < word[3] && !fake.broken; i++) {
		const struct piece *piece = &ring[(word[1] + i) & word[2]];

		/* the kernel looks at no more tiles than that */
		if (piece->bytes > 4096u << word[4])
			fake.broken = BROKEN;
		/* bulk copies take nothing else */
		if (word[7] == BULK && (piece->to | piece->from | piece->bytes) % 16 != 0)
			fake.broken = BROKEN;
		do_copy(piece->to, piece->from, piece->bytes);
	}
}

static void do_pattern(const uint64_t *word, bool check)
{
	const uint32_t *ids = (const uint32_t *)(uintptr_t)word[3];
	uint64_t wrong = 0;

	for (uint64_t j = 0; j < word[4]; j++) {
		uint32_t *block = (uint32_t *)(uintptr_t)(word[0] + ids[j] * word[1]);

		if (!reachable((uint64_t)(uintptr_t)block, word[2])) {
			fake.broken = BROKEN;
			return;
		}
		for (uint64_t w = 0; w < word[2] / 4; w++) {
			uint32_t value = pattern_word((uint32_t)word[5], (uint32_t)(word[6] + j), (uint32_t)w);

			if (check)
				wrong += block[w] != value;
			else
				block[w] = value;
		}
	}
	if (check)
		*(uint32_t *)(uintptr_t)word[7] += (uint32_t)wrong;
}

static void perform(const struct operation *operation)
{
	const uint64_t *word = operation->word;

	switch (operation->kind) {
	case COPY_LIST:
		do_list(word);
		if (++fake.lists == fake.break_after)
			fake.broken = BROKEN;
		if (!fake.broken)
			__atomic_store_n((uint32_t *)(uintptr_t)word[5], (uint32_t)word[6], __ATOMIC_RELEASE);
		break;
	case COPY:
		do_copy(word[0], word[1], word[2]);
		break;
	case WRITE_VALUE:
		if (!fake.broken)
			__atomic_store_n((uint32_t *)(uintptr_t)word[0], (uint32_t)word[1], __ATOMIC_RELEASE);
		break;
	case FILL:
	case CHECK:
		do_pattern(word, operation->kind == CHECK);
		break;
	case WAIT_VALUE:
	case WORK:
		break;
	}
}

/* All streams share one queue, so a stream that waits holds up the others: in one process nothing may depend on those. */
static bool waits(const struct operation *operation)
{
	const uint64_t *word = operation->word;

	return operation->kind == WAIT_VALUE &&
		(int32_t)(__atomic_load_n((uint32_t *)(uintptr_t)word[0], __ATOMIC_ACQUIRE) - (uint32_t)word[1]) < 0;
}

static void *run(void *argument)
{
	pthread_mutex_lock(&fake.lock);
	for (;;) {
		struct operation *operation;

		while (fake.first == fake.last || fake.held || fake.broken)
			pthread_cond_wait(&fake.news, &fake.lock);
		operation = &fake.operations[fake.first % OPERATIONS];
		if (fake.launch_us > 0 && operation->kind == COPY_LIST) {
			pthread_mutex_unlock(&fake.lock);
			usleep(fake.launch_us);
			pthread_mutex_lock(&fake.lock);
		}
		if (waits(operation)) {
			pthread_mutex_unlock(&fake.lock);
			sched_yield();
			pthread_mutex_lock(&fake.lock);
			continue;
		}
		perform(operation);
		fake.done_of[operation->stream]++;
		fake.first++;
		pthread_cond_broadcast(&fake.news);
	}
	return argument;
}

static int add(enum operation_kind kind, gpu_stream stream, const uint64_t *words, unsigned count)
{
	struct operation *operation = &fake.operations[fake.last % OPERATIONS];
	sigset_t all, before;

	if (fake.last - fake.first == OPERATIONS)
		return GPU_OUT_OF_MEMORY;
	operation->kind = kind;
	operation->stream = (int)(uintptr_t)stream;
	memcpy(operation->word, words, count * sizeof(uint64_t));
	fake.last++;
	fake.last_of[operation->stream]++;
	if (!fake.thread_started) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		fake.thread_started = pthread_create(&fake.thread, NULL, run, NULL) == 0;
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		pthread_detach(fake.thread);
	}
	pthread_cond_broadcast(&fake.news);
	return 0;
}

/* ---- the library's functions ------------------------------------------------------------------------------------ */

#define FAKE(name, arguments) \
	int name arguments;   \
	int name arguments

FAKE(cuInit, (unsigned flags))
{
	const char *text = getenv("FAKE_CUDA_GPUS");

	(void)flags;
	if (!fake.started) {
		fake.gpus = text ? (int)strtol(text, NULL, 10) : 1;
		text = getenv("FAKE_CUDA_LAUNCH_US");
		fake.launch_us = text ? (unsigned)strtoul(text, NULL, 10) : 0;
		text = getenv("FAKE_CUDA_BREAK_AFTER");
		fake.break_after = text ? (unsigned)strtoul(text, NULL, 10) : 0;
		fake.started = true;
	}
	return leave(enter("cuInit"));
}

FAKE(cuDriverGetVersion, (int *version))
{
	*version = 13000;
	return 0;
}

FAKE(cuGetErrorName, (int code, const char **text))
{
	*text = code == BROKEN              ? "FAKE_ILLEGAL_ADDRESS"
		: code == GPU_OUT_OF_MEMORY ? "FAKE_OUT_OF_MEMORY"
					    : "FAKE_ERROR";
	return 0;
}

FAKE(cuGetErrorString, (int code, const char **text))
{
	(void)code;
	*text = "the fake says so";
	return 0;
}

FAKE(cuDeviceGetCount, (int *count))
{
	*count = fake.gpus;
	return leave(enter("cuDeviceGetCount"));
}

FAKE(cuDeviceGet, (int *device, int ordinal))
{
	*device = ordinal;
	return ordinal < fake.gpus ? leave(enter("cuDeviceGet")) : GPU_NO_DEVICE;
}

FAKE(cuDeviceGetName, (char *name, int size, int device))
{
	snprintf(name, (size_t)size, "Fake GPU %d", device);
	return 0;
}

FAKE(cuDeviceGetUuid_v2, (struct gpu_uuid * uuid, int device))
{
	memset(uuid, 0xfa, sizeof(*uuid));
	uuid->bytes[15] = (uint8_t)device;
	return leave(enter("cuDeviceGetUuid_v2"));
}

static int env_or(const char *name, int value)
{
	const char *text = getenv(name);

	return text ? (int)strtol(text, NULL, 10) : value;
}

FAKE(cuDeviceGetAttribute, (int *value, int attribute, int device))
{
	if (attribute == GPU_ATTRIBUTE_RDMA || attribute == GPU_ATTRIBUTE_DMA_BUF) {
		*value = env_or(attribute == GPU_ATTRIBUTE_RDMA ? "FAKE_CUDA_RDMA" : "FAKE_CUDA_DMA_BUF", 1);
		return leave(enter("cuDeviceGetAttribute"));
	}
	if (attribute == GPU_ATTRIBUTE_RDMA_ORDERING || attribute == GPU_ATTRIBUTE_RDMA_FLUSH) {
		*value = env_or(attribute == GPU_ATTRIBUTE_RDMA_FLUSH ? "FAKE_CUDA_FLUSH" : "FAKE_CUDA_ORDERING",
			attribute == GPU_ATTRIBUTE_RDMA_FLUSH ? GPU_RDMA_FLUSH_HOST : GPU_WRITES_TO_OWNER);
		return leave(enter("cuDeviceGetAttribute"));
	}
	*value = attribute == GPU_ATTRIBUTE_MAJOR            ? (getenv("FAKE_CUDA_OLD") ? 8 : 9)
		: attribute == GPU_ATTRIBUTE_PCI_BUS         ? 0x1a + device
		: attribute == GPU_ATTRIBUTE_MULTIPROCESSORS ? 132
							     : 1;
	return leave(enter("cuDeviceGetAttribute"));
}

FAKE(cuDevicePrimaryCtxRetain, (gpu_context * context, int device))
{
	*context = (gpu_context)(uintptr_t)(device + 1);
	return leave(enter("cuDevicePrimaryCtxRetain"));
}

FAKE(cuDevicePrimaryCtxRelease_v2, (int device))
{
	(void)device;
	return 0;
}

FAKE(cuCtxSetCurrent, (gpu_context context))
{
	depth = 1;
	current[0] = context;
	return 0;
}

FAKE(cuCtxPushCurrent_v2, (gpu_context context))
{
	current[depth++] = context;
	return 0;
}

FAKE(cuCtxPopCurrent_v2, (gpu_context * context))
{
	*context = current[--depth];
	return 0;
}

FAKE(cuCtxGetCurrent, (gpu_context * context))
{
	*context = depth > 0 ? current[depth - 1] : NULL;
	return leave(enter("cuCtxGetCurrent"));
}

/* Calls of a thread without a context are refused, as the real library does (pitfalls G03). */
static int enter_context(const char *name)
{
	int code = enter(name);

	return code == 0 && (depth == 0 || !current[depth - 1]) ? 201 : code;
}

FAKE(cuModuleLoadData, (gpu_module * module, const void *image))
{
	*module = (gpu_module)(uintptr_t)1;
	return leave(strstr(image, ".entry kvrail_") ? enter_context("cuModuleLoadData") : (enter(""), 218));
}

FAKE(cuModuleUnload, (gpu_module module))
{
	(void)module;
	return 0;
}

FAKE(cuModuleGetFunction, (gpu_function * function, gpu_module module, const char *name))
{
	static const char *const names[] = { "", "kvrail_copy", "kvrail_fill", "kvrail_check", "kvrail_work",
		"kvrail_copy_bulk" };

	(void)module;
	for (uintptr_t i = 1; i < KVR_COUNT_OF(names); i++) {
		if (strcmp(names[i], name) == 0) {
			*function = (gpu_function)i;
			return 0;
		}
	}
	return 500;
}

FAKE(cuFuncSetAttribute, (gpu_function function, int attribute, int value))
{
	int code = enter_context("cuFuncSetAttribute");

	if (code == 0 && (attribute != GPU_FUNCTION_SHARED_BYTES || (uintptr_t)function != BULK || value > 227 << 10))
		code = GPU_INVALID_VALUE;
	if (code == 0)
		fake.bulk_bytes = (unsigned)value;
	return leave(code);
}

FAKE(cuLaunchKernel,
	(gpu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
		unsigned block_z, unsigned shared_bytes, gpu_stream stream, void **parameters, void **extra))
{
	static const unsigned char widths[6][8] = { { 0 }, { 8, 4, 4, 4, 4, 8, 8, 4 }, { 8, 8, 8, 8, 4, 4, 4, 0 },
		{ 8, 8, 8, 8, 4, 4, 4, 8 }, { 4, 8 }, { 8, 4, 4, 4, 4, 8, 8, 4 } };
	uint64_t words[8] = { 0 };
	int code = enter_context("cuLaunchKernel");

	(void)extra;
	if (code != 0 || grid_x == 0 || grid_y * grid_z * block_y * block_z != 1 || block_x > 1024 ||
		shared_bytes > ((uintptr_t)function == BULK ? fake.bulk_bytes : 0))
		return leave(code ? code : GPU_INVALID_VALUE);
	for (int i = 0; i < 8; i++)
		memcpy(&words[i], parameters[i] ? parameters[i] : &words[i], widths[(uintptr_t)function][i]);
	if ((uintptr_t)function == BULK)
		symbol_of("kvrail_copy_bulk")->calls++;
	if ((uintptr_t)function == 1 || (uintptr_t)function == BULK) { /* arrivals are the kernel's own business */
		words[5] = words[6];
		words[6] = words[7];
		words[7] = (uintptr_t)function;
		return leave(add(COPY_LIST, stream, words, 8));
	}
	return leave(add((enum operation_kind)(FILL + (uintptr_t)function - 2), stream, words, 8));
}

FAKE(cuStreamCreateWithPriority, (gpu_stream * stream, unsigned flags, int priority))
{
	int code = enter_context("cuStreamCreateWithPriority");

	(void)flags;
	(void)priority;
	*stream = (gpu_stream)(uintptr_t)(++fake.streams % 64);
	return leave(code);
}

FAKE(cuStreamDestroy_v2, (gpu_stream stream))
{
	(void)stream;
	return 0;
}

FAKE(cuStreamQuery, (gpu_stream stream))
{
	int code = enter("cuStreamQuery");
	int index = (int)(uintptr_t)stream;

	return leave(code ? code : fake.done_of[index] < fake.last_of[index] ? GPU_NOT_READY : 0);
}

FAKE(cuStreamSynchronize, (gpu_stream stream))
{
	int code = enter("cuStreamSynchronize");
	int index = (int)(uintptr_t)stream;

	while (!code && !fake.broken && fake.done_of[index] < fake.last_of[index])
		pthread_cond_wait(&fake.news, &fake.lock);
	return leave(code ? code : fake.broken);
}

FAKE(cuCtxGetStreamPriorityRange, (int *least, int *greatest))
{
	*least = 0;
	*greatest = -5;
	return leave(enter_context("cuCtxGetStreamPriorityRange"));
}

FAKE(cuStreamWriteValue32_v2, (gpu_stream stream, gpu_address address, uint32_t value, unsigned flags))
{
	uint64_t words[] = { address, value };
	int code = enter_context("cuStreamWriteValue32_v2");

	(void)flags;
	return leave(code ? code : add(WRITE_VALUE, stream, words, 2));
}

FAKE(cuStreamWaitValue32_v2, (gpu_stream stream, gpu_address address, uint32_t value, unsigned flags))
{
	uint64_t words[] = { address, value };
	int code = enter_context("cuStreamWaitValue32_v2");

	if (code == 0 && (flags != GPU_WAIT_REACHED || address % 4 != 0 || !reachable(address, 4)))
		code = GPU_INVALID_VALUE;
	return leave(code ? code : add(WAIT_VALUE, stream, words, 2));
}

FAKE(cuEventQuery, (gpu_event event))
{
	(void)event;
	return leave(enter("cuEventQuery"));
}

FAKE(cuMemAlloc_v2, (gpu_address * address, size_t bytes))
{
	int code = enter_context("cuMemAlloc_v2");
	int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	struct memory *memory;
	void *mapped;

	bytes = kvr_round_up(bytes, 2 << 20); /* as the real one has it */
	if (code != 0 || fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
		return leave(code ? code : GPU_OUT_OF_MEMORY);
	mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		return leave(GPU_OUT_OF_MEMORY);
	*address = (uintptr_t)mapped;
	memory = new_memory(ALLOCATED, *address, bytes, fd);
	memory->device = (int)(uintptr_t)current[depth - 1] - 1;
	memory->serial = ++fake.serial;
	return leave(0);
}

FAKE(cuMemFree_v2, (gpu_address address))
{
	struct memory *memory;
	int code = enter_context("cuMemFree_v2");

	memory = find(address, 1, true);
	if (code != 0 || !memory || memory->address != address || memory->kind != ALLOCATED)
		return leave(code ? code : GPU_INVALID_VALUE);
	return leave(unmap(memory));
}

FAKE(cuMemGetAddressRange_v2, (gpu_address * base, size_t *bytes, gpu_address address))
{
	int code = enter_context("cuMemGetAddressRange_v2");
	const struct memory *memory = find(address, 1, true);

	if (code == 0 && memory) {
		*base = memory->address;
		*bytes = memory->bytes;
	}
	return leave(code ? code : memory ? 0 : GPU_INVALID_VALUE);
}

FAKE(cuMemsetD8_v2, (gpu_address address, unsigned char value, size_t bytes))
{
	int code = enter_context("cuMemsetD8_v2");

	if (code == 0 && find(address, bytes, true))
		memset((void *)(uintptr_t)address, value, bytes);
	return leave(code);
}

FAKE(cuMemcpyHtoDAsync_v2, (gpu_address to, const void *from, size_t bytes, gpu_stream stream))
{
	uint64_t words[] = { to, (uintptr_t)from, bytes };
	int code = enter_context("cuMemcpyHtoDAsync_v2");

	return leave(code ? code : add(COPY, stream, words, 3));
}

FAKE(cuMemcpyDtoHAsync_v2, (void *to, gpu_address from, size_t bytes, gpu_stream stream))
{
	uint64_t words[] = { (uintptr_t)to, from, bytes };
	int code = enter_context("cuMemcpyDtoHAsync_v2");

	return leave(code ? code : add(COPY, stream, words, 3));
}

FAKE(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))
{
	int code = enter_context("cuMemHostAlloc");

	(void)flags;
	if (code != 0)
		return leave(code);
	*address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	new_memory(PINNED, (uintptr_t)*address, bytes, -1);
	return leave(0);
}

FAKE(cuMemFreeHost, (void *address))
{
	struct memory *memory;

	enter_context("cuMemFreeHost");
	memory = find((uintptr_t)address, 1, false);
	return leave(memory && memory->kind == PINNED ? unmap(memory) : GPU_INVALID_VALUE);
}

FAKE(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags))
{
	int code = enter_context("cuMemHostRegister_v2");

	(void)flags;
	if (code == 0 && (find((uintptr_t)address, 1, false) || bytes == 0))
		code = GPU_ALREADY_REGISTERED;
	if (code == 0)
		new_memory(REGISTERED, (uintptr_t)address, bytes, -1);
	return leave(code);
}

FAKE(cuMemHostUnregister, (void *address))
{
	struct memory *memory;

	enter_context("cuMemHostUnregister");
	memory = find((uintptr_t)address, 1, false);
	if (!memory || memory->kind != REGISTERED || memory->address != (uintptr_t)address)
		return leave(713);
	memory->kind = FREE;
	return leave(0);
}

FAKE(cuMemHostGetDevicePointer_v2, (gpu_address * there, void *address, unsigned flags))
{
	int code = enter_context("cuMemHostGetDevicePointer_v2");

	if (code == 0 && (flags != 0 || !find((uintptr_t)address, 1, false)))
		code = GPU_INVALID_VALUE;
	*there = (uintptr_t)address;
	return leave(code);
}

FAKE(cuPointerGetAttribute, (void *value, int attribute, gpu_address address))
{
	int code = enter("cuPointerGetAttribute");
	const struct memory *memory = find(address, 1, true);
	uintptr_t context;

	if (code != 0 || !memory)
		return leave(code ? code : GPU_INVALID_VALUE);
	if (attribute == GPU_POINTER_CONTEXT) {
		context = (uintptr_t)memory->device + 1;
		memcpy(value, &context, sizeof(context));
	} else {
		*(int *)value = attribute == GPU_POINTER_MEMORY_TYPE ? (int)GPU_MEMORY_DEVICE : memory->device;
	}
	return leave(0);
}

FAKE(cuMemGetHandleForAddressRange,
	(void *handle, gpu_address address, size_t bytes, int type, unsigned long long flags))
{
	int code = enter_context("cuMemGetHandleForAddressRange");
	const struct memory *memory = find(address, bytes, true);

	/* whole pages, of memory that this process has made */
	if (code == 0 &&
		(type != GPU_RANGE_DMA_BUF || flags != 0 || !memory || memory->kind != ALLOCATED || bytes == 0 ||
			address % 4096 != 0 || bytes % 4096 != 0))
		code = GPU_INVALID_VALUE;
	if (code == 0)
		*(int *)handle = dup(memory->fd);
	return leave(code);
}

FAKE(cuFlushGPUDirectRDMAWrites, (int target, int scope))
{
	int code = enter_context("cuFlushGPUDirectRDMAWrites");

	return leave(code || (target == 0 && scope == GPU_WRITES_TO_OWNER) ? code : GPU_INVALID_VALUE);
}

struct fake_handle {
	int pid, fd, device;
	uint64_t bytes, serial;
};

FAKE(cuIpcGetMemHandle, (struct gpu_handle * handle, gpu_address address))
{
	int code = enter_context("cuIpcGetMemHandle");
	const struct memory *memory = find(address, 1, true);
	struct fake_handle own;

	if (code != 0 || !memory || memory->kind != ALLOCATED)
		return leave(code ? code : GPU_INVALID_VALUE);
	memset(handle, 0, sizeof(*handle));
	memset(&own, 0, sizeof(own));
	own.pid = getpid();
	own.fd = memory->fd;
	own.device = memory->device;
	own.bytes = memory->bytes;
	own.serial = memory->serial;
	memcpy(handle->bytes, &own, sizeof(own));
	return leave(0);
}

FAKE(cuIpcOpenMemHandle_v2, (gpu_address * address, struct gpu_handle handle, unsigned flags))
{
	int code = enter_context("cuIpcOpenMemHandle_v2");
	struct fake_handle own;
	char path[64];
	void *mapped;
	int fd;

	(void)flags;
	memcpy(&own, handle.bytes, sizeof(own));
	if (code == 0 && own.pid == getpid() && !getenv("FAKE_CUDA_SAME_PROCESS"))
		code = 201;
	if (code != 0)
		return leave(code);
	for (int i = 0; i < MEMORIES; i++) {
		if (fake.memory[i].kind == MAPPED && memcmp(fake.memory[i].handle, handle.bytes, 64) == 0) {
			fake.memory[i].users++;
			*address = fake.memory[i].address;
			return leave(0);
		}
	}
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", own.pid, own.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	mapped = fd < 0 ? MAP_FAILED : mmap(NULL, own.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return leave(GPU_INVALID_VALUE);
	}
	*address = (uintptr_t)mapped;
	memcpy(new_memory(MAPPED, *address, own.bytes, fd)->handle, handle.bytes, 64);
	return leave(0);
}

FAKE(cuIpcCloseMemHandle, (gpu_address address))
{
	struct memory *memory;

	enter_context("cuIpcCloseMemHandle");
	memory = find(address, 1, true);
	if (!memory || memory->kind != MAPPED || memory->address != address)
		return leave(GPU_INVALID_VALUE);
	return leave(--memory->users > 0 ? 0 : unmap(memory));
}
