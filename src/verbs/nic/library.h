/*
 * library.h - libibverbs, loaded at run time: one table of what the driver calls, all of it or nothing.
 *
 * The calls that the headers define inline and that end in a symbol of the library (ibv_query_port, ibv_query_gid_table,
 * ibv_reg_mr) are made through this table by functions of our own, so that no program of the project is linked to
 * libibverbs. The five calls of the data path dispatch through the context and need no symbol.
 */
#ifndef KVRAIL_VERBS_NIC_LIBRARY_H
#define KVRAIL_VERBS_NIC_LIBRARY_H

#include <infiniband/verbs.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct nic_library {
	void *handle;
	struct ibv_device **(*get_device_list)(int *count);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attributes);
	int (*query_port)(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attributes);
	ssize_t (*query_gid_table)(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
		uint32_t flags, size_t entry_size);
	int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *event);
	void (*ack_async_event)(struct ibv_async_event *event);
	const char *(*event_type_str)(enum ibv_event_type event);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *address, size_t length, int access);
	struct ibv_mr *(*reg_mr_iova2)(
		struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned int access);
	struct ibv_mr *(*reg_dmabuf_mr)(
		struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(
		struct ibv_context *context, int depth, void *cq_context, struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int count);
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attributes);
	int (*destroy_srq)(struct ibv_srq *srq);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
};

/*
 * name: of the library, as dlopen(3) takes it. 0; -EOPNOTSUPP: there is none, or it lacks a symbol (logged, with what to
 * install). It is never unloaded again: providers that it loaded itself may have threads and exit handlers.
 */
KVR_MUST_CHECK int nic_library_load(struct nic_library *library, const char *name);

/* As ibv_query_port: 0 or a positive errno. */
int nic_query_port(const struct nic_library *library, struct ibv_context *context, uint32_t port,
	struct ibv_port_attr *attributes);

KVR_END_C

#endif
