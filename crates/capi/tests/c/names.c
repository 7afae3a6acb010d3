/* Names, directories and attributes. */
#include "check.h"

#include <dirent.h>

static int entries(struct polder_volume volume, const char *path) {
    struct polder_dir directory;
    struct polder_entry entry;
    int count = 0, result;
    OK(polder_dir_open(volume, path, &directory));
    while ((result = polder_dir_next(directory, &entry)) == 1) {
        CHECK(entry.inode != 0 && strlen(entry.name) > 0);
        CHECK(strcmp(entry.name, ".") != 0 && strcmp(entry.name, "..") != 0);
        count += 1;
    }
    OK(result);
    RETURNS(polder_dir_next(directory, &entry), 0);
    OK(polder_dir_close(directory));
    FAILS(polder_dir_close(directory), EBADF);
    return count;
}

static void directories(struct polder_volume volume) {
    char longest[257], path[300];
    struct polder_dir directory;
    struct polder_entry entry;
    struct stat found;
    OK(polder_mkdir(volume, "/a", 0750));
    OK(polder_stat(volume, "/a", &found));
    CHECK(S_ISDIR(found.st_mode) && (found.st_mode & 07777) == 0750);
    FAILS(polder_mkdir(volume, "/a", 0750), EEXIST);
    FAILS(polder_mkdir(volume, "/x/y", 0777), ENOENT);
    OK(polder_mkdir_all(volume, "a/b/c"));
    OK(polder_mkdir_all(volume, "/a/b/c"));
    OK(polder_write_file(volume, "/a/b/c/file", "text", 4));
    FAILS(polder_rmdir(volume, "/a"), ENOTEMPTY);
    FAILS(polder_rmdir(volume, "/a/b/c/file"), ENOTDIR);
    FAILS(polder_unlink(volume, "/a"), EISDIR);
    OK(polder_remove_all(volume, "/a"));
    FAILS(polder_stat(volume, "/a", &found), ENOENT);

    memset(longest, 'n', 256);
    longest[256] = 0;
    snprintf(path, sizeof path, "/%s", longest);
    FAILS(polder_write_file(volume, path, "", 0), ENAMETOOLONG);
    path[256] = 0;
    OK(polder_write_file(volume, path, "", 0));
    OK(polder_dir_open(volume, "/", &directory));
    RETURNS(polder_dir_next(directory, &entry), 1);
    CHECK(strlen(entry.name) == 255 && entry.kind == DT_REG);
    OK(polder_dir_close(directory));
    OK(polder_unlink(volume, path));

    OK(polder_mkdir(volume, "/many", 0777));
    for (int number = 0; number < 500; number++) {
        snprintf(path, sizeof path, "/many/%d", number);
        OK(polder_write_file(volume, path, path, strlen(path)));
    }
    CHECK(entries(volume, "/many") == 500);
    FAILS(polder_dir_open(volume, "/many/1", &directory), ENOTDIR);
    OK(polder_remove_all(volume, "/many"));
    CHECK(entries(volume, "/") == 0);
}

static void renames_and_links(struct polder_volume volume) {
    char target[16];
    struct stat found, other;
    void *contents;
    size_t length;
    OK(polder_write_file(volume, "/one", "1", 1));
    OK(polder_write_file(volume, "/two", "22", 2));
    FAILS(polder_rename(volume, "/one", "/two", POLDER_RENAME_NOREPLACE), EEXIST);
    OK(polder_rename(volume, "/one", "/two", POLDER_RENAME_EXCHANGE));
    OK(polder_read_file(volume, "/one", &contents, &length));
    CHECK(length == 2 && memcmp(contents, "22", 2) == 0);
    polder_free(contents);
    OK(polder_rename(volume, "/one", "/two", 0));
    FAILS(polder_rename(volume, "/one", "/two", 0), ENOENT);
    FAILS(polder_rename(volume, "/two", "/one", 64), EINVAL);

    OK(polder_link(volume, "/two", "/three"));
    OK(polder_stat(volume, "/two", &found));
    OK(polder_stat(volume, "/three", &other));
    CHECK(found.st_nlink == 2 && found.st_ino == other.st_ino && found.st_size == 2);
    OK(polder_symlink(volume, "/three", "/link"));
    RETURNS(polder_readlink(volume, "/link", target, sizeof target), 6);
    CHECK(memcmp(target, "/three", 6) == 0);
    RETURNS(polder_readlink(volume, "/link", target, 2), 6);
    FAILS(polder_readlink(volume, "/two", target, sizeof target), EINVAL);
    OK(polder_lstat(volume, "/link", &found));
    CHECK(S_ISLNK(found.st_mode));
    OK(polder_stat(volume, "/link", &found));
    CHECK(S_ISREG(found.st_mode));
    OK(polder_symlink(volume, "loop", "/loop"));
    FAILS(polder_stat(volume, "/loop", &found), ELOOP);
    OK(polder_copy_file(volume, "/three", "/copy"));
    OK(polder_read_file(volume, "/copy", &contents, &length));
    CHECK(length == 2);
    polder_free(contents);
    polder_free(NULL);
}

static void attributes(struct polder_volume volume) {
    char value[8];
    char *names;
    size_t length;
    struct stat found;
    struct timespec times[2] = {{0, UTIME_OMIT}, {-2, 500000000}};
    OK(polder_write_file(volume, "/file", "0123456789", 10));
    OK(polder_chmod(volume, "/file", 04711));
    OK(polder_chown(volume, "/file", 1000, (gid_t)-1));
    OK(polder_utimens(volume, "/file", times));
    OK(polder_stat(volume, "/file", &found));
    CHECK((found.st_mode & 07777) == 04711 || (found.st_mode & 07777) == 0711);
    CHECK(found.st_uid == 1000 && found.st_gid == getegid());
    CHECK(found.st_mtim.tv_sec == -2 && found.st_mtim.tv_nsec == 500000000);
    times[1].tv_nsec = 1000000000;
    FAILS(polder_utimens(volume, "/file", times), EINVAL);
    OK(polder_utimens(volume, "/file", NULL));
    OK(polder_stat(volume, "/file", &found));
    CHECK(llabs((long long)(found.st_mtim.tv_sec - time(NULL))) < 600);
    OK(polder_truncate(volume, "/file", 5000));
    OK(polder_stat(volume, "/file", &found));
    CHECK(found.st_size == 5000);
    OK(polder_symlink(volume, "/file", "/owned"));
    OK(polder_lchown(volume, "/owned", 7, 8));
    times[0].tv_sec = times[1].tv_sec = 5, times[0].tv_nsec = times[1].tv_nsec = 6;
    OK(polder_lutimens(volume, "/owned", times));
    OK(polder_lstat(volume, "/owned", &found));
    CHECK(found.st_uid == 7 && found.st_gid == 8 && found.st_mtim.tv_sec == 5 && found.st_mtim.tv_nsec == 6);

    FAILS(polder_get_xattr(volume, "/file", "user.colour", value, sizeof value), ENODATA);
    OK(polder_set_xattr(volume, "/file", "user.colour", "blue", 4));
    OK(polder_set_xattr(volume, "/file", "user.empty", NULL, 0));
    RETURNS(polder_get_xattr(volume, "/file", "user.colour", NULL, 0), 4);
    RETURNS(polder_get_xattr(volume, "/file", "user.colour", value, sizeof value), 4);
    CHECK(memcmp(value, "blue", 4) == 0);
    FAILS(polder_get_xattr(volume, "/file", "user.colour", value, 3), ERANGE);
    OK(polder_list_xattrs(volume, "/file", &names, &length));
    CHECK(length == sizeof "user.colour" + sizeof "user.empty" && names[length - 1] == 0);
    polder_free(names);
    OK(polder_remove_xattr(volume, "/file", "user.colour"));
    FAILS(polder_remove_xattr(volume, "/file", "user.colour"), ENODATA);

    RETURNS(polder_get_lifetime(volume, "/file"), POLDER_LIFETIME_UNKNOWN);
    OK(polder_set_lifetime(volume, "/file", POLDER_LIFETIME_LONG));
    RETURNS(polder_get_lifetime(volume, "/file"), POLDER_LIFETIME_LONG);
    FAILS(polder_set_lifetime(volume, "/file", 1), EINVAL);
}

static void users(struct polder_volume volume) {
    struct polder_volume guest, other;
    struct polder_info info;
    struct polder_file file;
    OK(polder_volume_info(volume, &info));
    CHECK(strcmp(info.label, "test") == 0 && strlen(info.id) == 36 && info.block_size == 4096);
    gid_t groups[2] = {5, 6};
    OK(polder_mkdir(volume, "/private", 0700));
    OK(polder_mkdir(volume, "/group", 0770));
    OK(polder_chmod(volume, "/group", 0770));
    OK(polder_chown(volume, "/group", 0, 6));
    OK(polder_volume_as_user(volume, 1000, 1000, groups, 2, 077, &guest));
    FAILS(polder_volume_as_user(guest, 0, 0, NULL, 0, 0, &other), EPERM);
    FAILS(polder_write_file(guest, "/private/file", "", 0), EACCES);
    OK(polder_file_open(guest, "/group/file", O_RDWR | O_CREAT, 0666, &file));
    struct stat found;
    OK(polder_file_stat(file, &found));
    CHECK(found.st_uid == 1000 && (found.st_mode & 07777) == 0600);
    /* Closing a view closes neither the volume nor its files. */
    OK(polder_volume_close(guest));
    FAILS(polder_volume_sync(guest), EBADF);
    RETURNS(polder_file_write(file, "x", 1, 0), 1);
    OK(polder_file_close(file));
    OK(polder_volume_sync(volume));
    /* A view that outlives the volume is closed without an error. */
    OK(polder_volume_as_user(volume, 1, 1, NULL, 0, 0, &guest));
    OK(polder_volume_close(volume));
    OK(polder_volume_close(guest));
    FAILS(polder_volume_close(guest), EBADF);
}

int main(int count, char **arguments) {
    struct polder_volume volume;
    CHECK(count == 2);
    volume = new_volume(arguments, "volume");
    directories(volume);
    renames_and_links(volume);
    attributes(volume);
    users(volume);
    return 0;
}
