/* Stores bytes beyond the end of a file through a mapping of its last page, extends the file in every way that the argument
 * names, and reads the bytes between the old end and the new data. They must be zeros. Reports how many ways failed. */

#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, READ = 4 * PAGE };

typedef int grow(const char *path, int file, long to);

static int by_ftruncate(const char *path, int file, long to)
{
    (void)path;
    return ftruncate(file, to);
}

static int by_truncate(const char *path, int file, long to)
{
    (void)file;
    return truncate(path, to);
}

static int by_fallocate(const char *path, int file, long to)
{
    (void)path;
    return fallocate(file, 0, to, PAGE);
}

static int by_zeroing(const char *path, int file, long to)
{
    (void)path;
    return fallocate(file, FALLOC_FL_ZERO_RANGE, to, PAGE);
}

static int by_copying(const char *path, int file, long to)
{
    char source[500];
    loff_t from = 0, at = to;
    snprintf(source, sizeof source, "%s.source", path);
    int other = open(source, O_RDWR | O_CREAT, 0600);
    if (other < 0 || pwrite(other, "copied", 6, 0) != 6)
        return -1;
    int copied = copy_file_range(other, &from, file, &at, 6, 0);
    close(other);
    return copied == 6 ? 0 : -1;
}

static int by_direct_write(const char *path, int file, long to)
{
    (void)file;
    char *page = aligned_alloc(PAGE, PAGE);
    int direct = open(path, O_RDWR | O_DIRECT);
    if (direct < 0 || !page)
        return -1;
    memset(page, 'd', PAGE);
    int written = pwrite(direct, page, PAGE, to);
    close(direct);
    free(page);
    return written == PAGE ? 0 : -1;
}

static const struct {
    const char *name;
    grow *grow;
} WAYS[] = {
    {"ftruncate", by_ftruncate}, {"truncate", by_truncate},         {"fallocate", by_fallocate},
    {"zero", by_zeroing},        {"copy_file_range", by_copying}, {"direct", by_direct_write},
};

/* Whether a file that had `size` bytes still has them, and zeros up to `to`. */
static int is_clean(const char *path, int flags, long size, long to)
{
    char *bytes = aligned_alloc(PAGE, READ);
    int file = open(path, O_RDONLY | flags);
    long count = file < 0 || !bytes ? -1 : pread(file, bytes, READ, 0), clean = count >= size;
    for (long at = 0; clean && at < count && at < to; at++)
        clean = bytes[at] == (at < size ? 'a' : 0);
    close(file);
    free(bytes);
    return clean;
}

static int try_way(const char *path, grow *grow, long size, long to, int is_synced)
{
    char contents[2 * PAGE];
    long mapped = (size / PAGE + 1) * PAGE;
    unlink(path);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    memset(contents, 'a', sizeof contents);
    if (file < 0 || pwrite(file, contents, size, 0) != size)
        err(2, "%s", path);
    char *mapping = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED)
        err(2, "mmap");
    if (is_synced && msync(mapping, mapped, MS_SYNC))
        err(2, "msync");
    memset(mapping + size, '!', mapped - size);
    if (grow(path, file, to))
        err(2, "growing from %ld to %ld", size, to);
    int clean = is_clean(path, 0, size, to);
    if (fsync(file))
        err(2, "fsync");
    clean = clean && is_clean(path, O_DIRECT, size, to);
    munmap(mapping, mapped);
    close(file);
    return clean;
}

int main(int count, char **words)
{
    static const long SIZES[] = {3, 1000, PAGE + 4};
    int bad = 0, tried = 0;
    if (count != 2)
        errx(2, "FILE");
    for (unsigned way = 0; way < sizeof WAYS / sizeof *WAYS; way++)
        for (int which = 0; which < 3; which++)
            for (int is_synced = 0; is_synced < 2; is_synced++)
                for (int distance = 0; distance < 3; distance++) {
                    long size = SIZES[which], start = size / PAGE * PAGE;
                    long to = distance == 0 ? start + 2000 : distance == 1 ? start + PAGE + 100 : start + 50 * PAGE;
                    /* A direct write begins at a page boundary. */
                    if (WAYS[way].grow == by_direct_write)
                        to = to / PAGE * PAGE;
                    if (to <= size)
                        continue;
                    tried++;
                    if (!try_way(words[1], WAYS[way].grow, size, to, is_synced)) {
                        bad++;
                        printf("%s from %ld to %ld%s\n", WAYS[way].name, size, to, is_synced ? ", synced before" : "");
                    }
                }
    printf("%d of %d ways\n", bad, tried);
    return bad > 0;
}
