/* A process that is killed loses nothing that a sync has acknowledged. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 5 };

/* Appends numbers, and tells each that is durable. */
static void append_until_killed(const char *path, int pipe) {
    struct polder_volume volume;
    struct stat found;
    OK(polder_volume_open(path, NULL, &volume));
    struct polder_file file = open_file(volume, "/numbers", O_RDWR | O_CREAT);
    OK(polder_file_stat(file, &found));
    for (uint64_t number = (uint64_t)found.st_size / 8;; number++) {
        OK(polder_file_append(file, &number, sizeof number, NULL));
        OK(polder_file_sync(file));
        CHECK(write(pipe, &number, sizeof number) == sizeof number);
    }
}

int main(int count, char **arguments) {
    uint64_t durable = 0, number;
    CHECK(count == 2 || count == 4);
    if (count == 4) append_until_killed(arguments[2], atoi(arguments[3]));
    const char *path = in_place(arguments, "volume");
    OK(polder_volume_close(new_volume(arguments, "volume")));
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2], status;
        char descriptor[16];
        CHECK(pipe(ends) == 0);
        snprintf(descriptor, sizeof descriptor, "%d", ends[1]);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(ends[0]);
            execl(arguments[0], arguments[0], arguments[1], path, descriptor, (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        for (int told = 0; told < 20 + 7 * round; told++) {
            CHECK(read(ends[0], &durable, sizeof durable) == sizeof durable);
        }
        CHECK(kill(child, SIGKILL) == 0);
        while (read(ends[0], &durable, sizeof durable) == sizeof durable) continue;
        close(ends[0]);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));

        struct polder_volume volume;
        struct stat found;
        OK(polder_volume_open(path, NULL, &volume));
        struct polder_file file = open_file(volume, "/numbers", O_RDONLY);
        OK(polder_file_stat(file, &found));
        CHECK(found.st_size % 8 == 0 && (uint64_t)found.st_size / 8 > durable);
        for (uint64_t at = 0; at <= durable; at++) {
            RETURNS(polder_file_read(file, &number, sizeof number, at * 8), 8);
            CHECK(number == at);
        }
        OK(polder_file_close(file));
        OK(polder_volume_close(volume));
    }
    return 0;
}
