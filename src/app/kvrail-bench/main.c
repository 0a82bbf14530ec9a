/* main.c - kvrail-bench: which command, and its exit code: 0 good, 1 it failed, 2 wrong usage. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		puts("kvrail-bench " KVRAIL_VERSION);
		return 0;
	}
	fputs("usage: kvrail-bench replay|load [options]\n", stderr);
	return 2;
}
