/* Bad handles and pointers, for every function. A test in Rust checks that no function is missing here. */
#include "check.h"

#include <sys/wait.h>

static const struct timespec TIMES[2] = {{1, 1}, {2, 2}};

/* Every function with a handle of a volume refuses it. */
static void bad_volume(struct polder_volume volume, int number) {
    char text[8];
    char *memory;
    void *contents;
    size_t length;
    struct stat attributes;
    struct statvfs total;
    struct polder_volume view;
    struct polder_info info;
    struct polder_file file = {0};
    struct polder_dir directory;
    struct polder_mount mount;
    FAILS(polder_volume_close(volume), number);
    FAILS(polder_volume_sync(volume), number);
    FAILS(polder_volume_info(volume, &info), number);
    FAILS(polder_volume_statvfs(volume, &total), number);
    FAILS(polder_volume_stats(volume, &memory), number);
    FAILS(polder_volume_as_user(volume, 1, 1, NULL, 0, 0, &view), number);
    FAILS(polder_mount_open(volume, "/", &mount), number);
    FAILS(polder_mkdir(volume, "/x", 0777), number);
    FAILS(polder_mkdir_all(volume, "/x"), number);
    FAILS(polder_rmdir(volume, "/x"), number);
    FAILS(polder_remove_all(volume, "/x"), number);
    FAILS(polder_unlink(volume, "/x"), number);
    FAILS(polder_rename(volume, "/x", "/y", 0), number);
    FAILS(polder_link(volume, "/x", "/y"), number);
    FAILS(polder_symlink(volume, "/x", "/y"), number);
    FAILS(polder_readlink(volume, "/x", text, sizeof text), number);
    FAILS(polder_read_file(volume, "/x", &contents, &length), number);
    FAILS(polder_write_file(volume, "/x", "", 0), number);
    FAILS(polder_copy_file(volume, "/x", "/y"), number);
    FAILS(polder_stat(volume, "/", &attributes), number);
    FAILS(polder_lstat(volume, "/", &attributes), number);
    FAILS(polder_chmod(volume, "/", 0777), number);
    FAILS(polder_chown(volume, "/", 1, 1), number);
    FAILS(polder_lchown(volume, "/", 1, 1), number);
    FAILS(polder_utimens(volume, "/", TIMES), number);
    FAILS(polder_lutimens(volume, "/", TIMES), number);
    FAILS(polder_truncate(volume, "/", 1), number);
    FAILS(polder_get_xattr(volume, "/", "user.x", text, sizeof text), number);
    FAILS(polder_set_xattr(volume, "/", "user.x", text, 1), number);
    FAILS(polder_list_xattrs(volume, "/", &memory, &length), number);
    FAILS(polder_remove_xattr(volume, "/", "user.x"), number);
    FAILS(polder_set_lifetime(volume, "/", POLDER_LIFETIME_LONG), number);
    FAILS(polder_get_lifetime(volume, "/"), number);
    FAILS(polder_dir_open(volume, "/", &directory), number);
    FAILS(polder_file_open(volume, "/x", O_RDWR | O_CREAT, 0644, &file), number);
    CHECK(file.id == 0);
}

static void bad_file(struct polder_file file, struct polder_file good, int number) {
    char bytes[8];
    uint64_t offset;
    struct stat attributes;
    struct polder_read read = {file, 0, bytes, sizeof bytes, 0};
    FAILS(polder_file_read(file, bytes, sizeof bytes, 0), number);
    FAILS(polder_read_many(&read, 1), number);
    FAILS(polder_file_write(file, "x", 1, 0), number);
    FAILS(polder_file_append(file, "x", 1, &offset), number);
    FAILS(polder_file_sync(file), number);
    FAILS(polder_file_stat(file, &attributes), number);
    FAILS(polder_file_truncate(file, 1), number);
    FAILS(polder_file_chmod(file, 0644), number);
    FAILS(polder_file_utimens(file, TIMES), number);
    FAILS(polder_file_allocate(file, 0, 0, 1), number);
    FAILS(polder_file_seek(file, 0, SEEK_DATA, &offset), number);
    FAILS(polder_file_copy_range(file, 0, good, 0, 1), number);
    FAILS(polder_file_copy_range(good, 0, file, 0, 1), number);
    FAILS(polder_file_clone_range(file, 0, good, 0, 0), number);
    FAILS(polder_file_set_lifetime(file, POLDER_LIFETIME_LONG), number);
    FAILS(polder_file_lock(file, LOCK_EX | LOCK_NB), number);
    FAILS(polder_file_lock_range(file, F_WRLCK, 0, 1, 0), number);
    FAILS(polder_file_close(file), number);
}

static void null_pointers(struct polder_volume volume, struct polder_file file) {
    void *contents;
    char *memory;
    size_t length;
    char text[8];
    struct stat attributes;
    struct polder_volume made;
    struct polder_dir directory;
    struct polder_file other;
    struct polder_mount mount;
    FAILS(polder_volume_create(NULL, NULL, NULL, &made), EFAULT);
    FAILS(polder_volume_create("/tmp/x", NULL, NULL, NULL), EFAULT);
    FAILS(polder_volume_open(NULL, NULL, &made), EFAULT);
    FAILS(polder_volume_open("/tmp/x", NULL, NULL), EFAULT);
    FAILS(polder_volume_as_user(volume, 1, 1, NULL, 1, 0, &made), EFAULT);
    FAILS(polder_volume_as_user(volume, 1, 1, NULL, 0, 0, NULL), EFAULT);
    FAILS(polder_volume_as_user(volume, 1, 1, NULL, SIZE_MAX, 0, &made), EINVAL);
    FAILS(polder_volume_statvfs(volume, NULL), EFAULT);
    FAILS(polder_volume_info(volume, NULL), EFAULT);
    FAILS(polder_volume_stats(volume, NULL), EFAULT);
    FAILS(polder_mount_open(volume, NULL, &mount), EFAULT);
    FAILS(polder_mount_open(volume, "/", NULL), EFAULT);
    FAILS(polder_mkdir(volume, NULL, 0777), EFAULT);
    FAILS(polder_mkdir_all(volume, NULL), EFAULT);
    FAILS(polder_rmdir(volume, NULL), EFAULT);
    FAILS(polder_remove_all(volume, NULL), EFAULT);
    FAILS(polder_unlink(volume, NULL), EFAULT);
    FAILS(polder_rename(volume, NULL, "/y", 0), EFAULT);
    FAILS(polder_rename(volume, "/x", NULL, 0), EFAULT);
    FAILS(polder_link(volume, "/x", NULL), EFAULT);
    FAILS(polder_symlink(volume, NULL, "/y"), EFAULT);
    FAILS(polder_readlink(volume, "/x", NULL, 5), EFAULT);
    FAILS(polder_read_file(volume, "/x", NULL, &length), EFAULT);
    FAILS(polder_read_file(volume, "/x", &contents, NULL), EFAULT);
    FAILS(polder_write_file(volume, "/x", NULL, 1), EFAULT);
    FAILS(polder_copy_file(volume, NULL, "/y"), EFAULT);
    FAILS(polder_stat(volume, "/", NULL), EFAULT);
    FAILS(polder_lstat(volume, NULL, &attributes), EFAULT);
    FAILS(polder_chmod(volume, NULL, 0777), EFAULT);
    FAILS(polder_chown(volume, NULL, 1, 1), EFAULT);
    FAILS(polder_lchown(volume, NULL, 1, 1), EFAULT);
    FAILS(polder_utimens(volume, NULL, TIMES), EFAULT);
    FAILS(polder_lutimens(volume, NULL, NULL), EFAULT);
    FAILS(polder_truncate(volume, NULL, 1), EFAULT);
    FAILS(polder_get_xattr(volume, "/", NULL, text, sizeof text), EFAULT);
    FAILS(polder_get_xattr(volume, "/", "user.x", NULL, 1), EFAULT);
    FAILS(polder_set_xattr(volume, "/", "user.x", NULL, 1), EFAULT);
    FAILS(polder_list_xattrs(volume, "/", NULL, &length), EFAULT);
    FAILS(polder_list_xattrs(volume, "/", &memory, NULL), EFAULT);
    FAILS(polder_remove_xattr(volume, "/", NULL), EFAULT);
    FAILS(polder_set_lifetime(volume, NULL, POLDER_LIFETIME_LONG), EFAULT);
    FAILS(polder_get_lifetime(volume, NULL), EFAULT);
    FAILS(polder_dir_open(volume, NULL, &directory), EFAULT);
    FAILS(polder_dir_open(volume, "/", NULL), EFAULT);
    FAILS(polder_file_open(volume, NULL, O_RDONLY, 0, &other), EFAULT);
    FAILS(polder_file_open(volume, "/", O_RDONLY, 0, NULL), EFAULT);
    FAILS(polder_file_read(file, NULL, 1, 0), EFAULT);
    FAILS(polder_file_read(file, text, (size_t)-1, 0), EINVAL);
    FAILS(polder_file_write(file, NULL, 1, 0), EFAULT);
    FAILS(polder_file_append(file, NULL, 1, NULL), EFAULT);
    FAILS(polder_file_stat(file, NULL), EFAULT);
    FAILS(polder_file_seek(file, 0, SEEK_DATA, NULL), EFAULT);
    FAILS(polder_log_to_stderr(NULL), EFAULT);
    FAILS(polder_log_to_stderr("no=such=filter"), EINVAL);
    polder_free(NULL);
}

static void bad_options(char **arguments, struct polder_volume open) {
    struct {
        struct polder_open_options known;
        uint64_t more;
    } later = {POLDER_OPEN_OPTIONS_INIT, 0};
    struct polder_open_options options = POLDER_OPEN_OPTIONS_INIT;
    struct polder_create_options create = POLDER_CREATE_OPTIONS_INIT;
    struct polder_volume volume = {0};
    FAILS(polder_volume_open(in_place(arguments, "missing"), NULL, &volume), ENOENT);
    FAILS(polder_volume_open(arguments[1], NULL, &volume), EINVAL);
    options.flags = POLDER_OPEN_PRIVATE;
    FAILS(polder_volume_open(in_place(arguments, "volume"), &options, &volume), EBUSY);
    options.flags = 0;
    FAILS(polder_volume_create(in_place(arguments, "new"), NULL, NULL, &volume), EINVAL);
    FAILS(polder_volume_create(in_place(arguments, "volume"), &create, NULL, &volume), EBUSY);
    FILE *stream = fopen(in_place(arguments, "data"), "w");
    CHECK(stream != NULL && fputs("data", stream) >= 0 && fclose(stream) == 0);
    create.size = 64 << 20;
    FAILS(polder_volume_create(in_place(arguments, "data"), &create, NULL, &volume), EEXIST);
    FAILS(polder_volume_open(in_place(arguments, "data"), NULL, &volume), EINVAL);
    create.flags = 64;
    FAILS(polder_volume_create(in_place(arguments, "new"), &create, NULL, &volume), EINVAL);
    create.flags = 0;
    create.label = "\xff";
    FAILS(polder_volume_create(in_place(arguments, "new"), &create, NULL, &volume), EINVAL);
    options.struct_size = 0;
    FAILS(polder_volume_open(in_place(arguments, "volume"), &options, &volume), EINVAL);
    options.struct_size = sizeof options;
    options.flags = 64;
    FAILS(polder_volume_open(in_place(arguments, "volume"), &options, &volume), EINVAL);
    options.flags = 0;
    options.cache_bytes = 1;
    FAILS(polder_volume_open(in_place(arguments, "volume"), &options, &volume), EINVAL);
    later.known.struct_size = sizeof later;
    later.more = 1;
    FAILS(polder_volume_open(in_place(arguments, "volume"), &later.known, &volume), E2BIG);
    CHECK(volume.id == 0);
    OK(polder_volume_sync(open));
}

int main(int count, char **arguments) {
    struct polder_entry entry;
    CHECK(count == 2 && polder_message()[0] == 0);
    CHECK(strchr(polder_version(), '.') != NULL);
    struct polder_volume volume = new_volume(arguments, "volume");
    struct polder_file file = open_file(volume, "/file", O_RDWR | O_CREAT);
    struct polder_dir directory;
    OK(polder_dir_open(volume, "/", &directory));

    const uint64_t numbers[] = {0, 1, 0xdeadbeef, UINT64_MAX, volume.id ^ 1, file.id, directory.id, volume.id << 1};
    for (size_t number = 0; number < sizeof numbers / sizeof *numbers; number++) {
        bad_volume((struct polder_volume){numbers[number]}, EBADF);
        if (numbers[number] != file.id) bad_file((struct polder_file){numbers[number]}, file, EBADF);
        if (numbers[number] == directory.id) continue;
        FAILS(polder_dir_next((struct polder_dir){numbers[number]}, &entry), EBADF);
        FAILS(polder_dir_close((struct polder_dir){numbers[number]}), EBADF);
        FAILS(polder_mount_close((struct polder_mount){numbers[number]}), EBADF);
    }
    FAILS(polder_dir_next(directory, NULL), EFAULT);
    null_pointers(volume, file);
    bad_options(arguments, volume);

    /* A child has the handles, but not the threads of the volume. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bad_volume(volume, ECHILD);
        bad_file(file, file, ECHILD);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);


    struct polder_file closed = file;
    OK(polder_file_close(file));
    file = open_file(volume, "/file", O_RDWR);
    bad_file(closed, file, EBADF);
    OK(polder_volume_close(volume));
    bad_volume(volume, EBADF);
    /* It is still open, but its volume is closed. */
    FAILS(polder_file_write(file, "x", 1, 0), EBADF);
    OK(polder_file_close(file));
    bad_file(file, closed, EBADF);
    FAILS(polder_dir_next(directory, &entry), EBADF);
    OK(polder_dir_close(directory));
    FAILS(polder_dir_close(directory), EBADF);
    return 0;
}
