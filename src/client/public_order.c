/* public_order.c - kvrail.h's layers and marks. */
#include <errno.h>

#include "client/client_private.h"

/* ---- layers ----------------------------------------------------------------------------------------------------- */

struct layer_wait {
	kvr_ticket ticket;
	uint32_t layer;
	int error;
};

static bool layer_done(struct kvr_client *client, void *context)
{
	struct layer_wait *wait = context;
	struct client_word word;

	wait->error = client_layer(client, wait->ticket, wait->layer, &word);
	return wait->error != -EAGAIN;
}

static void count_waiter(struct kvr_client *client, uint32_t change)
{
	pthread_mutex_lock(&client->lock);
	client->word_waiters += change;
	pthread_mutex_unlock(&client->lock);
}

KVR_API int kvr_wait_layer(struct kvr_client *client, kvr_ticket ticket, uint32_t layer, uint64_t timeout_ns)
{
	struct layer_wait wait = { ticket, layer, 0 };
	int error = client_enter(client);

	if (error)
		return error;
	client_leave(client);
	count_waiter(client, 1);
	error = client_wait_until(client, timeout_ns, layer_done, &wait);
	count_waiter(client, (uint32_t)-1);
	if (!error)
		return wait.error;
	error_text_set("the data of layer %u is not there yet", layer);
	return error;
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

static int gpu_refused(const struct kvr_client *client, int code)
{
	char text[128];

	if (code == GPU_DONE)
		return 0;
	error_text_set("CUDA refused it: %s", gpu_driver_error(&client->gpu, code, text, sizeof(text)));
	return -EIO;
}

static gpu_address word_on_gpu(const struct kvr_client *client, const struct client_word *word)
{
	return client->words_on_gpu + (uint64_t)((const char *)word->address - (const char *)client->words);
}

KVR_API int kvr_stream_wait_layer(struct kvr_client *client, kvr_ticket ticket, uint32_t layer, void *stream)
{
	struct client_word word;
	int error = client_enter(client);

	if (error)
		return error;
	error = client_layer(client, ticket, layer, &word);
	if (error == -EAGAIN)
		error = client_gpu_words(client);
	else
		word.address = NULL; /* there already */
	client_leave(client);
	/* Outside the lock: it may wait for room in the stream. */
	if (!error && word.address)
		error = gpu_refused(client,
			client->gpu.wait_value(stream, word_on_gpu(client, &word), word.value, GPU_WAIT_REACHED));
	return error;
}

/* ---- marks ------------------------------------------------------------------------------------------------------ */

KVR_API int kvr_mark_new(struct kvr_client *client, kvr_mark *mark)
{
	int error = client_enter(client);

	if (error)
		return error;
	error = client_mark_new(client, mark);
	client_leave(client);
	return error;
}

KVR_API int kvr_mark_reach(struct kvr_client *client, kvr_mark mark)
{
	int error = client_enter(client);

	if (error)
		return error;
	error = client_mark_reach(client, mark);
	client_leave(client);
	return error;
}

KVR_API int kvr_stream_mark(struct kvr_client *client, kvr_mark mark, void *stream)
{
	struct client_word word;
	int error = client_enter(client);

	if (error)
		return error;
	error = client_mark_word(client, mark, &word);
	if (!error)
		error = client_gpu_words(client);
	client_leave(client);
	if (!error)
		error = gpu_refused(client, client->gpu.write_value(stream, word_on_gpu(client, &word), word.value, 0));
	return error;
}
