/* Handles of files, which the standard library of Rust does not know.
 *
 *   handles save PATH HANDLE        writes the handle of PATH to the file HANDLE
 *   handles show DIRECTORY HANDLE   prints what the file of that handle holds; an error is its number
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: errno %d\n", what, errno);
	return 1;
}

int main(int count, char **words)
{
	union {
		struct file_handle head;
		char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} handle;
	char buffer[4096];
	ssize_t length;
	int mount, file;
	FILE *stored;

	if (count != 4)
		return 2;
	memset(&handle, 0, sizeof handle);
	if (strcmp(words[1], "save") == 0) {
		handle.head.handle_bytes = MAX_HANDLE_SZ;
		if (name_to_handle_at(AT_FDCWD, words[2], &handle.head, &mount, 0) != 0)
			return fail("name_to_handle_at");
		stored = fopen(words[3], "w");
		if (!stored || fwrite(&handle, sizeof handle, 1, stored) != 1 || fclose(stored) != 0)
			return fail(words[3]);
		return 0;
	}
	stored = fopen(words[3], "r");
	if (!stored || fread(&handle, sizeof handle, 1, stored) != 1)
		return fail(words[3]);
	mount = open(words[2], O_RDONLY | O_DIRECTORY);
	if (mount < 0)
		return fail(words[2]);
	file = open_by_handle_at(mount, &handle.head, O_RDONLY);
	if (file < 0)
		return fail("open_by_handle_at");
	while ((length = read(file, buffer, sizeof buffer)) > 0)
		if (write(1, buffer, length) != length)
			return fail("write");
	return length < 0 ? fail("read") : 0;
}
