#include "base/text.h"

#include <errno.h>
#include <string.h>

/* More digits behind the point than this say nothing: 10^-9 of a TiB is a thousand bytes. */
#define FRACTION_DIGITS_MAX 9

/* "12.5GiB": whole part 12, fraction 5 / 10, unit "GiB". */
struct number {
	uint64_t whole;
	uint64_t fraction;
	uint64_t fraction_of; /* a power of ten; 1 without a point */
	const char *unit;
};

static bool is_digit(char character)
{
	return character >= '0' && character <= '9';
}

/* Digits from *at on, at least one. 0, -EINVAL, -ERANGE. */
static int read_digits(const char **at, uint64_t *value)
{
	bool overflow = false;

	if (!is_digit(**at))
		return -EINVAL;
	*value = 0;
	for (; is_digit(**at); ++*at) {
		overflow |= __builtin_mul_overflow(*value, (uint64_t)10, value);
		overflow |= __builtin_add_overflow(*value, (uint64_t)(**at - '0'), value);
	}
	return overflow ? -ERANGE : 0;
}

static int read_number(const char *string, struct number *number)
{
	const char *at = string;
	int error = read_digits(&at, &number->whole);

	number->fraction = 0;
	number->fraction_of = 1;
	if (!error && *at == '.') {
		const char *first = ++at;

		error = read_digits(&at, &number->fraction);
		if (!error && at - first > FRACTION_DIGITS_MAX)
			error = -EINVAL;
		for (; !error && first < at; first++)
			number->fraction_of *= 10;
	}
	number->unit = at;
	return error;
}

/* number * scale, rounded down. */
static int scale_number(const struct number *number, uint64_t scale, uint64_t *value)
{
	unsigned __int128 scaled = (unsigned __int128)number->whole * scale;

	scaled += (unsigned __int128)number->fraction * scale / number->fraction_of;
	if (scaled > UINT64_MAX)
		return -ERANGE;
	*value = (uint64_t)scaled;
	return 0;
}

int text_parse_u64(const char *string, uint64_t *value)
{
	const char *at = string;
	uint64_t read;
	int error = read_digits(&at, &read);

	if (error == -EINVAL || *at != '\0')
		return -EINVAL;
	if (!error)
		*value = read;
	return error;
}

/* The power of 1024 of a unit, -1 when it is none. */
static int size_unit_power(const char *unit)
{
	static const char letters[] = "KMGT";
	const char *letter;

	if (strcmp(unit, "") == 0 || strcmp(unit, "B") == 0)
		return 0;
	letter = strchr(letters, unit[0] == 'k' ? 'K' : unit[0]);
	if (!letter || (unit[1] != '\0' && strcmp(unit + 1, "iB") != 0))
		return -1;
	return (int)(letter - letters) + 1;
}

int text_parse_size(const char *string, uint64_t *bytes)
{
	struct number number;
	int error = read_number(string, &number);
	int power;

	if (error == -EINVAL)
		return error;
	power = size_unit_power(number.unit);
	if (power < 0 || (power == 0 && number.fraction_of != 1))
		return -EINVAL;
	return error ? error : scale_number(&number, (uint64_t)1 << (10 * power), bytes);
}

const char *text_size_refusal(const char *string)
{
	static const struct {
		const char *unit;
		const char *text;
	} decimal[] = {
		{ "kB", "kB is a decimal unit, write KiB" },
		{ "KB", "KB is a decimal unit, write KiB" },
		{ "MB", "MB is a decimal unit, write MiB" },
		{ "GB", "GB is a decimal unit, write GiB" },
		{ "TB", "TB is a decimal unit, write TiB" },
	};
	struct number number;
	uint64_t bytes;
	int error = text_parse_size(string, &bytes);

	if (!error)
		return NULL;
	if (error == -ERANGE)
		return "is larger than 16 EiB";
	if (read_number(string, &number) == 0) {
		for (size_t i = 0; i < KVR_COUNT_OF(decimal); i++) {
			if (strcmp(number.unit, decimal[i].unit) == 0)
				return decimal[i].text;
		}
	}
	return "is no size: a number, then nothing, B, K, M, G, T, KiB, MiB, GiB or TiB";
}

int text_parse_time(const char *string, uint64_t *ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = {
		{ "ns", 1 },
		{ "us", 1000 },
		{ "ms", 1000000 },
		{ "s", 1000000000 },
		{ "m", 60000000000 },
		{ "h", 3600000000000 },
	};
	struct number number;
	int error = read_number(string, &number);

	if (error == -EINVAL)
		return error;
	for (size_t i = 0; i < KVR_COUNT_OF(units); i++) {
		if (strcmp(number.unit, units[i].unit) == 0)
			return error ? error : scale_number(&number, units[i].ns, ns);
	}
	if (*number.unit == '\0' && !error && number.whole == 0 && number.fraction == 0) {
		*ns = 0;
		return 0;
	}
	return -EINVAL;
}
