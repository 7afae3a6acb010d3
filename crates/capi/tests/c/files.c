/* Open files: reading, writing, space, copies, locks; and what of it is there after the next open. */
#include "check.h"

static char block[4096];

static void reads_and_writes(struct polder_volume volume) {
    char bytes[16];
    uint64_t offset = 99;
    struct stat found;
    struct polder_file file;
    FAILS(polder_file_open(volume, "/file", O_RDWR, 0, &file), ENOENT);
    file = open_file(volume, "/file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT);
    FAILS(polder_file_open(volume, "/file", O_RDWR | O_CREAT | O_EXCL, 0644, &file), EEXIST);
    FAILS(polder_file_open(volume, "/file", O_RDONLY | O_DIRECTORY, 0, &file), ENOTDIR);
    FAILS(polder_file_open(volume, "/file", O_PATH, 0, &file), EINVAL);
    FAILS(polder_file_open(volume, "/file", O_ACCMODE, 0, &file), EINVAL);
    FAILS(polder_file_open(volume, "/file", O_RDONLY | O_TRUNC, 0, &file), EINVAL);
    FAILS(polder_file_open(volume, "/", O_RDWR, 0, &file), EISDIR);
    RETURNS(polder_file_write(file, "hello", 5, 10), 5);
    OK(polder_file_append(file, "world", 5, &offset));
    CHECK(offset == 15);
    OK(polder_file_append(file, "", 0, NULL));
    RETURNS(polder_file_read(file, bytes, sizeof bytes, 8), 12);
    CHECK(memcmp(bytes, "\0\0helloworld", 12) == 0);
    RETURNS(polder_file_read(file, bytes, sizeof bytes, 1000), 0);
    RETURNS(polder_file_read(file, NULL, 0, 0), 0);
    OK(polder_file_sync(file));
    OK(polder_file_truncate(file, 12));
    OK(polder_file_chmod(file, 0600));
    OK(polder_file_utimens(file, NULL));
    OK(polder_file_set_lifetime(file, POLDER_LIFETIME_SHORT));
    OK(polder_file_set_lifetime(file, -1));
    FAILS(polder_file_set_lifetime(file, 77), EINVAL);
    OK(polder_file_stat(file, &found));
    CHECK(found.st_size == 12 && (found.st_mode & 07777) == 0600);
    OK(polder_file_close(file));
    FAILS(polder_file_close(file), EBADF);

    file = open_file(volume, "/file", O_WRONLY | O_APPEND);
    FAILS(polder_file_read(file, bytes, 1, 0), EBADF);
    RETURNS(polder_file_write(file, "!", 1, 0), 1);
    OK(polder_file_stat(file, &found));
    CHECK(found.st_size == 13);
    OK(polder_file_close(file));
    file = open_file(volume, "/file", O_WRONLY | O_TRUNC);
    OK(polder_file_stat(file, &found));
    CHECK(found.st_size == 0);
    OK(polder_file_close(file));
    file = open_file(volume, "/", O_RDONLY | O_DIRECTORY);
    OK(polder_file_sync(file));
    OK(polder_file_close(file));
}

static void many_reads(struct polder_volume volume) {
    char first[3], second[10];
    struct polder_file file = open_file(volume, "/many", O_RDWR | O_CREAT);
    struct polder_read reads[3];
    memset(reads, 0, sizeof reads);
    RETURNS(polder_file_write(file, "0123456789", 10, 0), 10);
    for (int number = 0; number < 3; number++) reads[number].file = file;
    reads[0].offset = 2, reads[0].buffer = first, reads[0].length = sizeof first;
    reads[2].offset = 8, reads[2].buffer = second, reads[2].length = sizeof second;
    OK(polder_read_many(reads, 3));
    CHECK(reads[0].result == 3 && memcmp(first, "234", 3) == 0);
    CHECK(reads[1].result == 0 && reads[2].result == 2 && memcmp(second, "89", 2) == 0);
    /* The reads after a failure are done as well. */
    reads[0].file.id ^= 1;
    second[0] = 'x';
    FAILS(polder_read_many(reads, 3), EBADF);
    CHECK(reads[0].result == -EBADF && reads[2].result == 2 && second[0] == '8');
    OK(polder_read_many(NULL, 0));
    FAILS(polder_read_many(NULL, 1), EFAULT);
    OK(polder_file_close(file));
}

static void space(struct polder_volume volume) {
    uint64_t found;
    struct stat attributes;
    struct statvfs total;
    struct polder_file file = open_file(volume, "/space", O_RDWR | O_CREAT);
    struct polder_file copy = open_file(volume, "/copy", O_RDWR | O_CREAT);
    memset(block, 'b', sizeof block);
    for (int number = 0; number < 4; number++) {
        RETURNS(polder_file_write(file, block, sizeof block, (uint64_t)number * 4096), 4096);
    }
    OK(polder_file_allocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
    OK(polder_file_seek(file, 0, SEEK_HOLE, &found));
    CHECK(found == 4096);
    OK(polder_file_seek(file, 4096, SEEK_DATA, &found));
    CHECK(found == 8192);
    FAILS(polder_file_seek(file, 1 << 20, SEEK_DATA, &found), ENXIO);
    FAILS(polder_file_seek(file, 0, SEEK_END, &found), EINVAL);
    OK(polder_file_allocate(file, 0, 0, 32768));
    OK(polder_file_stat(file, &attributes));
    CHECK(attributes.st_size == 32768 && attributes.st_blocks >= 64);
    OK(polder_file_allocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
    FAILS(polder_file_allocate(file, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP);
    RETURNS(polder_file_copy_range(file, 0, copy, 0, 28672), 28672);
    OK(polder_file_clone_range(file, 0, copy, 0, 0));
    OK(polder_volume_statvfs(volume, &total));
    CHECK(total.f_frsize == 4096 && total.f_bavail > 0 && total.f_bavail <= total.f_blocks);
    CHECK(total.f_namemax == 255 && !(total.f_flag & ST_RDONLY));
    OK(polder_file_close(file));
    OK(polder_file_close(copy));
}

static void locks(struct polder_volume volume) {
    struct polder_file one = open_file(volume, "/locked", O_RDWR | O_CREAT);
    struct polder_file other = open_file(volume, "/locked", O_RDWR);
    OK(polder_file_lock(one, LOCK_EX));
    FAILS(polder_file_lock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    OK(polder_file_lock(one, LOCK_SH));
    OK(polder_file_lock(other, LOCK_SH | LOCK_NB));
    OK(polder_file_lock(other, LOCK_UN));
    FAILS(polder_file_lock(one, 0), EINVAL);
    OK(polder_file_lock_range(one, F_WRLCK, 0, 100, 0));
    FAILS(polder_file_lock_range(other, F_RDLCK, 99, 1, 0), EWOULDBLOCK);
    OK(polder_file_lock_range(other, F_WRLCK, 100, 0, 1));
    OK(polder_file_lock_range(one, F_UNLCK, 0, 0, 0));
    OK(polder_file_lock_range(other, F_RDLCK, 0, 100, 1));
    FAILS(polder_file_lock_range(one, F_RDLCK, UINT64_MAX, 2, 0), EOVERFLOW);
    FAILS(polder_file_lock_range(one, 99, 0, 1, 0), EINVAL);
    /* Closing releases. */
    OK(polder_file_close(other));
    OK(polder_file_lock_range(one, F_WRLCK, 0, 0, 0));
    OK(polder_file_close(one));
}

int main(int count, char **arguments) {
    char *json;
    void *contents;
    size_t length;
    struct polder_open_options options = POLDER_OPEN_OPTIONS_INIT;
    struct polder_volume volume;
    CHECK(count == 2 && strlen(polder_version()) > 0);
    volume = new_volume(arguments, "volume");
    reads_and_writes(volume);
    many_reads(volume);
    space(volume);
    locks(volume);
    OK(polder_volume_stats(volume, &json));
    CHECK(strstr(json, "\"user_bytes\"") != NULL);
    polder_free(json);
    struct polder_file left_open = open_file(volume, "/many", O_RDONLY);
    OK(polder_volume_close(volume));
    FAILS(polder_volume_close(volume), EBADF);
    FAILS(polder_file_sync(left_open), EBADF);
    OK(polder_file_close(left_open));

    options.flags = POLDER_OPEN_READ_ONLY;
    options.cache_bytes = 4 << 20;
    OK(polder_volume_open(in_place(arguments, "volume"), &options, &volume));
    OK(polder_read_file(volume, "/many", &contents, &length));
    CHECK(length == 10 && memcmp(contents, "0123456789", 10) == 0);
    polder_free(contents);
    FAILS(polder_write_file(volume, "/many", "", 0), EROFS);
    OK(polder_mkdir_all(volume, "/"));
    OK(polder_volume_close(volume));
    return 0;
}
