/* What the tests in C have in common. The first argument of each program is a directory that is empty. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <polder.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s (%s)\n", __FILE__, __LINE__, #condition, polder_message()); \
            exit(1); \
        } \
    } while (0)

/* The call returns `wanted`. */
#define RETURNS(call, wanted) \
    do { \
        long long got_ = (long long)(call); \
        if (got_ != (long long)(wanted)) { \
            fprintf(stderr, "%s:%d: %s returned %lld, not %lld (%s)\n", __FILE__, __LINE__, #call, got_, \
                    (long long)(wanted), polder_message()); \
            exit(1); \
        } \
    } while (0)

#define OK(call) RETURNS(call, 0)

/* The call fails with an error number, and says why. */
#define FAILS(call, number) \
    do { \
        RETURNS(call, -(number)); \
        CHECK(polder_message()[0] != 0); \
    } while (0)

/* The path of a file in the directory of the test. */
static inline const char *in_place(char **arguments, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", arguments[1], name);
    return path;
}

/* A new volume of 64 MiB. */
static inline struct polder_volume new_volume(char **arguments, const char *name) {
    struct polder_create_options options = POLDER_CREATE_OPTIONS_INIT;
    struct polder_volume volume = {0};
    options.size = 64 << 20;
    options.label = "test";
    OK(polder_volume_create(in_place(arguments, name), &options, NULL, &volume));
    return volume;
}

static inline struct polder_file open_file(struct polder_volume volume, const char *path, int flags) {
    struct polder_file file = {0};
    OK(polder_file_open(volume, path, flags, 0644, &file));
    return file;
}
#endif
