// What compression of objects costs and gives (tier/object_body.h), on 2 MiB of numbers in bf16 as KV caches have them:
// 128 channels with scales and means of their own, two of them outliers; and the same with a quarter of the tokens repeated
// and half of them empty. `size` is the part that is left, checksums are included.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tier/object_body.h"

namespace
{

const size_t bytes = 2u << 20, channels = 128;

uint16_t to_bf16(double value)
{
	float single = static_cast<float>(value);
	uint32_t word;

	memcpy(&word, &single, sizeof(word));
	return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

std::vector<uint16_t> numbers(bool repeats)
{
	std::vector<uint16_t> out(bytes / 2);
	std::mt19937_64 random(1);
	std::normal_distribution<double> normal;
	double scale[channels], mean[channels];

	for (size_t c = 0; c < channels; c++) {
		scale[c] = std::exp(0.8 * normal(random));
		mean[c] = 0.7 * scale[c] * normal(random);
	}
	scale[5] *= 12;
	scale[77] *= 12;
	for (size_t i = 0; i < out.size(); i++)
		out[i] = to_bf16(normal(random) * scale[i % channels] + mean[i % channels]);
	for (size_t token = 0; repeats && token < out.size() / channels; token++) {
		if (token % 256 >= 128)
			memset(&out[token * channels], 0, channels * 2);
		else if (token % 256 >= 64)
			memcpy(&out[token * channels], &out[(token % 64) * channels], channels * 2);
	}
	return out;
}

void body(benchmark::State &state, bool load)
{
	std::vector<uint16_t> memory = numbers(state.range(2) != 0), back(bytes / 2);
	std::vector<uint8_t> header(OBJECT_HEADER_BYTES);
	struct object_codec codec;
	struct object_body stored, loaded;
	struct l2_request request = {};

	request.identity.bytes = bytes;
	request.memory = memory.data();
	if (object_codec_init(&codec, static_cast<int>(state.range(0)), static_cast<uint32_t>(state.range(1))) ||
		object_body_store(&codec, &request, &stored, header.data())) {
		state.SkipWithError("cannot be compressed here");
		object_codec_fini(&codec);
		return;
	}
	state.counters["size"] = static_cast<double>(stored.length) / static_cast<double>(bytes);
	for (auto _ : state) {
		if (load) {
			request.memory = back.data();
			if (object_body_load(&request, OBJECT_HEADER_BYTES + stored.length, &loaded))
				abort();
			memcpy(loaded.bytes, stored.bytes, stored.length); // as the network does
			if (object_body_check(&codec, &request, &loaded, header.data()))
				abort();
			object_body_free(&loaded);
		} else {
			object_body_free(&stored);
			if (object_body_store(&codec, &request, &stored, header.data()))
				abort();
		}
	}
	state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
	object_body_free(&stored);
	object_codec_fini(&codec);
}

void store(benchmark::State &state)
{
	body(state, false);
}

void load(benchmark::State &state)
{
	body(state, true);
}

void arguments(benchmark::internal::Benchmark *bench)
{
	for (int repeats = 0; repeats < 2; repeats++) {
		bench->Args({ 0, 1, repeats });
		bench->Args({ 1, 1, repeats });
		bench->Args({ 1, 2, repeats });
		bench->Args({ 3, 2, repeats });
	}
	bench->ArgNames({ "level", "element", "repeats" })->Unit(benchmark::kMicrosecond);
}

BENCHMARK(store)->Apply(arguments);
BENCHMARK(load)->Apply(arguments);

} // namespace

BENCHMARK_MAIN();
