/* driver.c - the table filled from the library. */
#include "gpu/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"

static const struct {
	const char *symbol;
	size_t offset;
} rows[] = {
#define GPU_DRIVER_ROW(name, symbol, arguments) { symbol, offsetof(struct gpu_driver, name) },
	GPU_DRIVER_FUNCTIONS(GPU_DRIVER_ROW)
#undef GPU_DRIVER_ROW
};

static int fill(struct gpu_driver *driver, const char *library, char *reason, size_t size)
{
	for (size_t i = 0; i < KVR_COUNT_OF(rows); i++) {
		void *function = fault_point("gpu_driver/symbol") ? NULL : dlsym(driver->library, rows[i].symbol);

		if (!function) {
			snprintf(reason, size, "%s has no %s: it is older than this program can use; update the driver",
				library, rows[i].symbol);
			return -ENOSYS;
		}
		memcpy((char *)driver + rows[i].offset, &function, sizeof(function));
	}
	return 0;
}

static int start(const struct gpu_driver *driver, const char *library, char *reason, size_t size)
{
	char text[128];
	int code = driver->init(0);
	int count = 0;

	if (code == GPU_DONE)
		code = driver->device_count(&count);
	if (code != GPU_DONE) {
		snprintf(reason, size, "%s can't be started: %s", library,
			gpu_driver_error(driver, code, text, sizeof(text)));
		return -ENODEV;
	}
	if (count == 0) {
		snprintf(reason, size, "%s sees no GPU", library);
		return -ENODEV;
	}
	return 0;
}

static int open_table(const char *library, int how, struct gpu_driver *driver, char *reason, size_t size)
{
	const char *words;
	int error;

	memset(driver, 0, sizeof(*driver));
	driver->library = fault_point("gpu_driver/open") ? NULL : dlopen(library, RTLD_NOW | RTLD_LOCAL | how);
	if (!driver->library) {
		words = dlerror();
		snprintf(reason, size, "no GPU driver: %s", words ? words : library);
		return -ENOENT;
	}
	error = fill(driver, library, reason, size);
	if (error)
		gpu_driver_unload(driver);
	return error;
}

int gpu_driver_load(const char *library, struct gpu_driver *driver, char *reason, size_t size)
{
	int error;

	if (!library)
		library = GPU_LIBRARY;
	error = open_table(library, 0, driver, reason, size);
	if (error)
		return error;
	error = start(driver, library, reason, size);
	if (error)
		gpu_driver_unload(driver);
	return error;
}

int gpu_driver_join(const char *library, struct gpu_driver *driver, char *reason, size_t size)
{
	return open_table(library ? library : GPU_LIBRARY, RTLD_NOLOAD, driver, reason, size);
}

void gpu_driver_unload(struct gpu_driver *driver)
{
	if (driver->library)
		dlclose(driver->library);
	memset(driver, 0, sizeof(*driver));
}

const char *gpu_driver_error(const struct gpu_driver *driver, int code, char *text, size_t size)
{
	const char *name = NULL, *words = NULL;

	if (driver->error_name(code, &name) != GPU_DONE || !name)
		name = "unknown error";
	if (driver->error_text(code, &words) != GPU_DONE || !words)
		words = "no words";
	snprintf(text, size, "%s (%d): %s", name, code, words);
	return text;
}
