#include "config/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int refuse(const char *text, const char *why, struct option_error *error)
{
	snprintf(error->text, sizeof(error->text),
		"%.200s: %s; write KIND:PLACE, then ?name=value&name=value as wanted", text, why);
	return -EINVAL;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* One byte of at..end, a %XX taken as what it stands for; 0: it cannot stand here. */
static char take_byte(const char **at, const char *end)
{
	char c = *(*at)++;
	int high, low;

	if (c != '%')
		return (unsigned char)c < ' ' ? '\0' : c;
	if (end - *at < 2)
		return '\0';
	high = digit_of((*at)[0]);
	low = digit_of((*at)[1]);
	*at += 2;
	if (high < 0 || low < 0 || high * 16 + low < ' ')
		return '\0';
	return (char)(high * 16 + low);
}

static bool put(char *out, size_t size, size_t *length, char c)
{
	if (*length + 1 >= size)
		return false;
	out[(*length)++] = c;
	out[*length] = '\0';
	return true;
}

static const char *copy_where(struct place *place, const char *at, const char *end)
{
	size_t length = 0;

	if (at == end)
		return "there is no place behind the kind";
	while (at < end) {
		char c;

		/* Who writes & for ? means options: as a part of the place they would be dropped without a word. */
		if (*at == '&')
			return "options begin with ?, not with & (%26 is an & of the place)";
		c = take_byte(&at, end);
		if (!c)
			return "a % is followed by two digits of a printable character";
		if (!put(place->where, sizeof(place->where), &length, c))
			return "the place is longer than 255 characters";
	}
	return NULL;
}

/* name=value from at to end as a line of `options`. */
static const char *copy_option(struct place *place, size_t *length, const char *at, const char *end)
{
	size_t name = strcspn(at, "=");
	bool good = true;

	if (name == 0 || at + name >= end)
		return "each option is name=value";
	for (size_t i = 0; i < name; i++) {
		if ((at[i] < 'a' || at[i] > 'z') && (at[i] < '0' || at[i] > '9') && at[i] != '-')
			return "names of options have small letters, digits and -";
		good &= put(place->options, sizeof(place->options), length, at[i]);
	}
	at += name + 1;
	good &= put(place->options, sizeof(place->options), length, '=');
	good &= put(place->options, sizeof(place->options), length, '"');
	while (at < end && good) {
		char c = take_byte(&at, end);

		if (!c)
			return "a % is followed by two digits of a printable character";
		if (c == '"' || c == '\\')
			good &= put(place->options, sizeof(place->options), length, '\\');
		good &= put(place->options, sizeof(place->options), length, c);
	}
	good &= put(place->options, sizeof(place->options), length, '"');
	good &= put(place->options, sizeof(place->options), length, '\n');
	return good ? NULL : "its options are too long";
}

int place_parse(const char *text, struct place *place, struct option_error *error)
{
	size_t kind = strcspn(text, ":?"), length = 0;
	const char *at = text + kind, *end;
	const char *why;

	memset(place, 0, sizeof(*place));
	if (*at != ':' || kind == 0)
		return refuse(text, "it names no kind", error);
	if (kind >= sizeof(place->kind))
		return refuse(text, "there is no such kind", error);
	memcpy(place->kind, text, kind);
	at++;
	end = at + strcspn(at, "?");
	why = copy_where(place, at, end);
	for (at = end; !why && *at; at = end) {
		at++;
		end = at + strcspn(at, "&");
		why = copy_option(place, &length, at, end);
	}
	return why ? refuse(text, why, error) : 0;
}
