#include "verbs/nic/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"

/* Of each symbol the default version is taken: the one that the headers of this build describe. */
static const struct {
	const char *name;
	size_t offset;
} symbols[] = {
	{ "ibv_get_device_list", offsetof(struct nic_library, get_device_list) },
	{ "ibv_free_device_list", offsetof(struct nic_library, free_device_list) },
	{ "ibv_get_device_name", offsetof(struct nic_library, get_device_name) },
	{ "ibv_open_device", offsetof(struct nic_library, open_device) },
	{ "ibv_close_device", offsetof(struct nic_library, close_device) },
	{ "ibv_query_device", offsetof(struct nic_library, query_device) },
	{ "ibv_query_port", offsetof(struct nic_library, query_port) },
	{ "_ibv_query_gid_table", offsetof(struct nic_library, query_gid_table) },
	{ "ibv_get_async_event", offsetof(struct nic_library, get_async_event) },
	{ "ibv_ack_async_event", offsetof(struct nic_library, ack_async_event) },
	{ "ibv_event_type_str", offsetof(struct nic_library, event_type_str) },
	{ "ibv_alloc_pd", offsetof(struct nic_library, alloc_pd) },
	{ "ibv_dealloc_pd", offsetof(struct nic_library, dealloc_pd) },
	{ "ibv_reg_mr", offsetof(struct nic_library, reg_mr) },
	{ "ibv_reg_mr_iova2", offsetof(struct nic_library, reg_mr_iova2) },
	{ "ibv_reg_dmabuf_mr", offsetof(struct nic_library, reg_dmabuf_mr) },
	{ "ibv_dereg_mr", offsetof(struct nic_library, dereg_mr) },
	{ "ibv_create_comp_channel", offsetof(struct nic_library, create_comp_channel) },
	{ "ibv_destroy_comp_channel", offsetof(struct nic_library, destroy_comp_channel) },
	{ "ibv_create_cq", offsetof(struct nic_library, create_cq) },
	{ "ibv_destroy_cq", offsetof(struct nic_library, destroy_cq) },
	{ "ibv_get_cq_event", offsetof(struct nic_library, get_cq_event) },
	{ "ibv_ack_cq_events", offsetof(struct nic_library, ack_cq_events) },
	{ "ibv_create_srq", offsetof(struct nic_library, create_srq) },
	{ "ibv_destroy_srq", offsetof(struct nic_library, destroy_srq) },
	{ "ibv_create_qp", offsetof(struct nic_library, create_qp) },
	{ "ibv_modify_qp", offsetof(struct nic_library, modify_qp) },
	{ "ibv_destroy_qp", offsetof(struct nic_library, destroy_qp) },
};

int nic_library_load(struct nic_library *library, const char *name)
{
	memset(library, 0, sizeof(*library));
	library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library->handle) {
		log_error(
			"nic: no RDMA library: %s; install rdma-core's libibverbs and its providers (Debian: libibverbs1 "
			"ibverbs-providers)",
			dlerror());
		return -EOPNOTSUPP;
	}
	for (size_t i = 0; i < KVR_COUNT_OF(symbols); i++) {
		void *symbol = dlsym(library->handle, symbols[i].name);

		if (!symbol) {
			log_error("nic: %s lacks %s; install the libibverbs of rdma-core 34 or later", name,
				symbols[i].name);
			dlclose(library->handle);
			library->handle = NULL;
			return -EOPNOTSUPP;
		}
		memcpy((char *)library + symbols[i].offset, &symbol, sizeof(symbol));
	}
	return 0;
}

int nic_query_port(
	const struct nic_library *library, struct ibv_context *context, uint32_t port, struct ibv_port_attr *attributes)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, query_port);

	memset(attributes, 0, sizeof(*attributes));
	if (extended)
		return extended->query_port(context, (uint8_t)port, attributes, sizeof(*attributes));
	/* What the symbol fills is the beginning of the struct. */
	return library->query_port(context, (uint8_t)port, (struct _compat_ibv_port_attr *)attributes);
}
