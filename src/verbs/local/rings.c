/* rings.c - the memory that the processes of a queue pair share: made by the server, mapped by the client; and how
 * that is told, the address. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "verbs/local/local.h"

static void put_u32(uint8_t *bytes, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get_u32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

void local_address_encode(const struct local_address *address, uint8_t bytes[LOCAL_ADDRESS_BYTES])
{
	memset(bytes, 0, LOCAL_ADDRESS_BYTES);
	put_u32(bytes, LOCAL_ADDRESS_MAGIC);
	bytes[4] = LOCAL_ADDRESS_VERSION;
	bytes[6] = (uint8_t)address->role;
	put_u32(bytes + 8, address->qp_num);
	put_u32(bytes + 12, address->geometry.slots);
	put_u32(bytes + 16, address->geometry.stride);
	put_u32(bytes + 20, address->geometry.message_bytes);
}

static bool geometry_is_sound(const struct local_geometry *geometry)
{
	return geometry->slots >= LOCAL_SLOTS_MIN && geometry->slots <= LOCAL_SLOTS_MAX &&
		(geometry->slots & (geometry->slots - 1)) == 0 && geometry->message_bytes > 0 &&
		geometry->message_bytes <= LOCAL_MESSAGE_BYTES_MAX &&
		geometry->stride == local_slot_stride(geometry->message_bytes) &&
		local_shared_bytes(geometry) <= LOCAL_SHARED_BYTES_MAX;
}

int local_address_decode(const uint8_t *bytes, uint32_t length, struct local_address *address)
{
	memset(address, 0, sizeof(*address));
	if (length != LOCAL_ADDRESS_BYTES || get_u32(bytes) != LOCAL_ADDRESS_MAGIC ||
		bytes[4] != LOCAL_ADDRESS_VERSION || bytes[5] != 0 || bytes[6] > LOCAL_CLIENT || bytes[7] != 0 ||
		get_u32(bytes + 24) != 0 || get_u32(bytes + 28) != 0)
		return -EBADMSG;
	address->role = bytes[6];
	address->qp_num = get_u32(bytes + 8);
	address->geometry.slots = get_u32(bytes + 12);
	address->geometry.stride = get_u32(bytes + 16);
	address->geometry.message_bytes = get_u32(bytes + 20);
	if (address->role == LOCAL_SERVER && !geometry_is_sound(&address->geometry))
		return -EBADMSG;
	return 0;
}

/* Where each side finds its rings: the client fills the first. */
static void place(struct local_qp *qp, void *base, const struct local_geometry *geometry)
{
	uint8_t *from_client = (uint8_t *)base + LOCAL_SLOTS_OFFSET;
	uint8_t *from_server = from_client + (uint64_t)geometry->slots * geometry->stride;
	bool server = qp->device->server;

	qp->geometry = *geometry;
	qp->shared = base;
	qp->shared_bytes = local_shared_bytes(geometry);
	qp->mine = &qp->shared->side[server ? LOCAL_SERVER : LOCAL_CLIENT];
	qp->peer = &qp->shared->side[server ? LOCAL_CLIENT : LOCAL_SERVER];
	qp->tx_slots = server ? from_server : from_client;
	qp->rx_slots = server ? from_client : from_server;
	qp->tx_mask = geometry->slots - 1;
	qp->rx_mask = geometry->slots - 1;
	qp->stride = geometry->stride;
	qp->message_bytes = geometry->message_bytes;
}

/* The seals go on before anybody else sees it: the client can't shrink it under the server, nor lift the seals. */
static int sealed_memory(uint64_t bytes)
{
	int fd = fault_point("local_rings/memfd") ? (errno = EMFILE, -1)
						  : memfd_create("kvrail-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) == 0 && fallocate(fd, 0, 0, (off_t)bytes) == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int local_rings_create(struct local_qp *qp)
{
	int wake[2] = { -1, -1 };
	void *base;
	int rc;

	if (!geometry_is_sound(&qp->geometry))
		return -EINVAL;
	qp->shared_fd = sealed_memory(local_shared_bytes(&qp->geometry));
	if (qp->shared_fd < 0) {
		rc = qp->shared_fd;
		log_error("local: %lu bytes of shared memory for the rings: %s",
			(unsigned long)local_shared_bytes(&qp->geometry), strerror(-rc));
		return rc == -EMFILE || rc == -ENFILE || rc == -ENOSPC ? -ENOMEM : rc;
	}
	base = mmap(NULL, local_shared_bytes(&qp->geometry), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		qp->shared_fd, 0);
	if (base == MAP_FAILED)
		goto no_memory;
	if (fault_point("local_rings/socketpair") ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, wake) != 0)
		goto no_socket;
	place(qp, base, &qp->geometry);
	qp->wake_fd = wake[0];
	qp->peer_wake_fd = wake[1];
	return 0;
no_socket:
	munmap(base, local_shared_bytes(&qp->geometry));
no_memory:
	close(qp->shared_fd);
	qp->shared_fd = -1;
	return -ENOMEM;
}

int local_rings_attach(struct local_qp *qp, const struct local_geometry *geometry, const int *fds)
{
	uint64_t bytes = local_shared_bytes(geometry);
	int seals = fcntl(fds[0], F_GET_SEALS);
	struct stat status;
	void *base;

	if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
		log_error("local: the server's rings are not sealed against shrinking");
		return -EPERM;
	}
	if (fstat(fds[0], &status) != 0 || (uint64_t)status.st_size < bytes || fstat(fds[1], &status) != 0 ||
		!S_ISSOCK(status.st_mode)) {
		log_error("local: the server's address does not fit its descriptors");
		return -EBADMSG;
	}
	qp->wake_fd = fault_point("local_rings/dup") ? -1 : fcntl(fds[1], F_DUPFD_CLOEXEC, 0);
	if (qp->wake_fd < 0)
		return -ENOMEM;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fds[0], 0);
	if (base == MAP_FAILED) {
		close(qp->wake_fd);
		qp->wake_fd = -1;
		return -ENOMEM;
	}
	place(qp, base, geometry);
	return 0;
}

void local_rings_destroy(struct local_qp *qp)
{
	if (qp->shared) {
		kvr_store_release(&qp->mine->closed, (uint32_t)LOCAL_CLOSED);
		munmap(qp->shared, qp->shared_bytes);
		qp->shared = NULL;
	}
	for (unsigned i = 0; i < 3; i++) {
		int *fd = i == 0 ? &qp->shared_fd : i == 1 ? &qp->wake_fd : &qp->peer_wake_fd;

		if (*fd >= 0)
			close(*fd);
		*fd = -1;
	}
}
