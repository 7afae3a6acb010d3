// What only this file system has: URIs, volumes that are shared, in use, full or for reading only.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "../rocksdb_polder.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "test.h"

namespace rocksdb_polder_tests {

namespace {

const IOOptions kIo;

std::string KindOfOpen(const std::string& uri) {
  std::shared_ptr<FileSystem> file_system;
  return Kind(rocksdb_polder::OpenFileSystem(uri, &file_system));
}

// Another process that has a volume open.
class Holder {
 public:
  Holder(const std::string& self, const std::string& uri) {
    int input[2], output[2];
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      dup2(input[0], 0);
      dup2(output[1], 1);
      execl(self.c_str(), self.c_str(), "hold", uri.c_str(), nullptr);
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    char text[100];
    const ssize_t length = read(output[0], text, sizeof text);
    said = std::string(text, length > 0 ? static_cast<size_t>(length) : 0);
    close(output[0]);
  }
  ~Holder() {
    close(input_);
    int status = 0;
    waitpid(child_, &status, 0);
    EXPECT(status == 0);
  }

  std::string said;

 private:
  pid_t child_ = -1;
  int input_ = -1;
};

void Uris(const std::string& place) {
  std::ofstream(place + "/text") << "this is no volume, and it is longer than a block. " << std::string(9000, '.');
  const std::string volume = "polder://" + place + "/uri.polder";
  const std::pair<std::string, std::string> wrong[] = {
      {"polder://", "InvalidArgument"},
      {"polder://relative/path", "InvalidArgument"},
      {"polder:///", "InvalidArgument"},
      {"other:///x", "InvalidArgument"},
      {volume, "IOError/" + std::to_string(Status::kPathNotFound)},
      {"polder://" + place + "/none/x?size=64M", "IOError/" + std::to_string(Status::kPathNotFound)},
      {"polder://" + place + "/text", "InvalidArgument"},
      {"polder://" + place + "/text?size=64M", "InvalidArgument"},
      {"polder://" + place, "InvalidArgument"},
      {volume + "?size=64M&root=relative", "InvalidArgument"},
      {volume + "?size=64M&root", "InvalidArgument"},
      {volume + "?size=64M&unknown=1", "InvalidArgument"},
      {volume + "?size=", "InvalidArgument"},
      {volume + "?size=0", "InvalidArgument"},
      {volume + "?size=-1", "InvalidArgument"},
      {volume + "?size=1X", "InvalidArgument"},
      {volume + "?size=99999999999T", "InvalidArgument"},
      {volume + "?size=64M&commit=0", "InvalidArgument"},
      {volume + "?size=64M&cache=1", "InvalidArgument"},
      {volume + "?size=64M&read_only=maybe", "InvalidArgument"},
      {volume + "?size=64M&read_only=true", "InvalidArgument"},
      {volume + "?size=4K", "InvalidArgument"},
      {volume + "%?size=64M", "InvalidArgument"},
      {volume + "%0g?size=64M", "InvalidArgument"},
      {volume + "%00?size=64M", "InvalidArgument"},
  };
  for (const auto& [uri, kind] : wrong) {
    const std::string found = KindOfOpen(uri);
    Expect(found == kind, uri + ": " + found + " instead of " + kind);
    // RocksDB ignores names that it does not know, and returns no file system.
    std::shared_ptr<FileSystem> file_system;
    const Status status = FileSystem::CreateFromString(ROCKSDB_NAMESPACE::ConfigOptions(), uri, &file_system);
    Expect(!status.ok() || !file_system, uri);
  }
  EXPECT(access((place + "/uri.polder").c_str(), F_OK) != 0);
  const std::string escaped = "polder://" + place + "/a%3Fb%26c%25.polder?size=64M&root=/x%20y&cache=8M&commit=100";
  EXPECT(KindOfOpen(escaped) == "OK");
  EXPECT(access((place + "/a?b&c%.polder").c_str(), F_OK) == 0);
}

void Roots(const std::string& place) {
  const std::string volume = "polder://" + place + "/roots.polder?size=64M";
  std::shared_ptr<FileSystem> whole, inner, config;
  EXPECT_OK(rocksdb_polder::OpenFileSystem(volume, &whole));
  EXPECT_OK(rocksdb_polder::OpenFileSystem(volume + "&root=/a/b/", &inner));
  EXPECT_OK(FileSystem::CreateFromString(ROCKSDB_NAMESPACE::ConfigOptions(), volume + "&root=/a", &config));
  EXPECT(config->IsInstanceOf("PolderFileSystem") && config->GetId() == volume + "&root=/a");
  EXPECT_OK(WriteStringToFile(inner.get(), "text", "/../../c/../f", false));
  std::string text;
  EXPECT_OK(ReadFileToString(whole.get(), "/a/b/f", &text));
  EXPECT(text == "text");
  EXPECT_OK(ReadFileToString(config.get(), "b/f", &text));
  std::vector<std::string> names;
  EXPECT_OK(inner->GetChildren("/..", kIo, &names, nullptr));
  EXPECT(names == std::vector<std::string>{"f"});
  std::string path;
  EXPECT_OK(inner->GetAbsolutePath("x/../y", kIo, &path, nullptr));
  EXPECT(path == "/y");
  // The lock is the same for all of them.
  FileLock *first = nullptr, *second = nullptr;
  EXPECT_OK(inner->LockFile("/LOCK", kIo, &first, nullptr));
  EXPECT(whole->LockFile("/a/b/LOCK", kIo, &second, nullptr).IsIOError());
  EXPECT_OK(inner->UnlockFile(first, kIo, nullptr));
  // The last one closes the volume, and the next one finds everything.
  whole.reset();
  inner.reset();
  EXPECT(config->FileExists("/b/f", kIo, nullptr).ok());
  std::unique_ptr<FSSequentialFile> open;
  EXPECT_OK(config->NewSequentialFile("/b/f", FileOptions(), &open, nullptr));
  config.reset();
  open.reset();
  EXPECT_OK(rocksdb_polder::OpenFileSystem(volume, &whole));
  EXPECT(whole->FileExists("/a/b/f", kIo, nullptr).ok());
}

// Threads that open and close a volume at the same time share it or wait for each other.
void OpenAndClose(const std::string& place) {
  const std::string uri = "polder://" + place + "/roots.polder";
  std::vector<std::thread> threads;
  std::string found[4];
  for (auto& kinds : found) {
    threads.emplace_back([&kinds, &uri] {
      for (int i = 0; i < 5; i++) {
        const std::string kind = KindOfOpen(uri);
        if (kind != "OK") kinds += kind + " ";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& kinds : found) Expect(kinds.empty(), "opened at the same time: " + kinds);
}

void InUse(const std::string& place, const std::string& self) {
  const std::string uri = "polder://" + place + "/roots.polder";
  {
    const Holder holder(self, uri);
    Expect(holder.said == "OK\n", "the other process: " + holder.said);
    EXPECT(KindOfOpen(uri) == "Busy");
    EXPECT(KindOfOpen(uri + "?read_only=true") == "Busy");
  }
  EXPECT(KindOfOpen(uri) == "OK");
}

void ReadOnly(const std::string& place) {
  const std::string uri = "polder://" + place + "/roots.polder";
  std::shared_ptr<FileSystem> file_system;
  EXPECT_OK(rocksdb_polder::OpenFileSystem(uri + "?read_only=true&root=/a/b", &file_system));
  if (!file_system) return;
  std::string text;
  EXPECT_OK(ReadFileToString(file_system.get(), "/f", &text));
  EXPECT_OK(file_system->CreateDirIfMissing("/", kIo, nullptr));
  EXPECT(!WriteStringToFile(file_system.get(), "x", "/g", false).ok());
  EXPECT(file_system->DeleteFile("/f", kIo, nullptr).IsIOError());
  EXPECT(file_system->CreateDirIfMissing("/none", kIo, nullptr).IsIOError());
  FileLock* lock = nullptr;
  EXPECT(file_system->LockFile("/LOCK2", kIo, &lock, nullptr).IsIOError());
  // A process that has it open for reading cannot write to it.
  EXPECT(KindOfOpen(uri) == "Busy");
}

void ExitWithoutClosing(const std::string& place, const std::string& self) {
  const std::string uri = "polder://" + place + "/roots.polder";
  EXPECT(system((self + " leak '" + uri + "'").c_str()) == 0);
  std::shared_ptr<FileSystem> file_system;
  EXPECT_OK(rocksdb_polder::OpenFileSystem(uri, &file_system));
  std::string text;
  EXPECT_OK(ReadFileToString(file_system.get(), "/leaked", &text));
  EXPECT(text == "kept without a sync");
}

// Space runs out, and comes back when files are deleted.
void Full(const std::string& place) {
  std::shared_ptr<FileSystem> file_system;
  EXPECT_OK(rocksdb_polder::OpenFileSystem("polder://" + place + "/full.polder?size=64M", &file_system));
  uint64_t before = 0, after = 0;
  EXPECT_OK(file_system->GetFreeSpace("/", kIo, &before, nullptr));
  std::unique_ptr<FSWritableFile> file;
  EXPECT_OK(file_system->NewWritableFile("/filling", FileOptions(), &file, nullptr));
  const std::string piece = Bytes(1, 1 << 20);
  IOStatus status;
  uint64_t written = 0;
  while (status.ok() && written < (64 << 20)) {
    status = file->Append(piece, kIo, nullptr);
    if (status.ok()) status = file->Sync(kIo, nullptr);
    if (status.ok()) written += piece.size();
  }
  EXPECT(status.IsNoSpace() && status.GetRetryable());
  Expect(written + (2 << 20) > before, std::to_string(written) + " of " + std::to_string(before) + " bytes fit");
  EXPECT_OK(file_system->GetFreeSpace("/", kIo, &after, nullptr));
  EXPECT(after < (2 << 20));
  file->Close(kIo, nullptr).PermitUncheckedError();
  // Overwriting and deleting find space as long as there is garbage.
  for (int round = 0; round < 4; round++) {
    EXPECT_OK(file_system->DeleteFile("/filling", kIo, nullptr));
    EXPECT_OK(file_system->NewWritableFile("/filling", FileOptions(), &file, nullptr));
    for (uint64_t done = 0; done + piece.size() <= written; done += piece.size()) {
      EXPECT_OK(file->Append(piece, kIo, nullptr));
    }
    EXPECT_OK(file->Close(kIo, nullptr));
  }
}

// Overwrites files of a volume that is 95 % full, until three times its capacity is written. There is always space.
void NearlyFull(const std::string& place) {
  std::shared_ptr<FileSystem> file_system;
  EXPECT_OK(rocksdb_polder::OpenFileSystem("polder://" + place + "/nearly.polder?size=64M", &file_system));
  uint64_t capacity = 0;
  EXPECT_OK(file_system->GetFreeSpace("/", kIo, &capacity, nullptr));
  constexpr uint64_t kFileBytes = 512 << 10;
  const uint64_t files = capacity * 95 / 100 / kFileBytes;
  uint64_t written = 0;
  const auto write = [&](uint64_t number, uint64_t round) {
    const std::string name = "/" + std::to_string(number) + ".sst";
    std::unique_ptr<FSWritableFile> file;
    IOStatus status = file_system->NewWritableFile(name, FileOptions(), &file, nullptr);
    if (status.ok()) status = file->Append(Bytes(round, kFileBytes), kIo, nullptr);
    if (status.ok() && round % 3 == 0) status = file->Sync(kIo, nullptr);
    if (status.ok()) status = file->Close(kIo, nullptr);
    if (status.ok() && round % 7 == 0) status = file_system->DeleteFile(name, kIo, nullptr);
    written += kFileBytes;
    return Expect(status.ok(), name + " after " + std::to_string(written) + " bytes: " + status.ToString());
  };
  for (uint64_t number = 0; number < files; number++) write(number, 1);
  for (uint64_t round = 0; written < 3 * capacity && write(round * 7919 % files, round); round++) {
  }
}

void NotSupported(const std::string& place) {
  std::shared_ptr<FileSystem> file_system;
  EXPECT_OK(rocksdb_polder::OpenFileSystem("polder://" + place + "/roots.polder?root=/other", &file_system));
  EXPECT_OK(WriteStringToFile(file_system.get(), Bytes(1, 10000), "/f", true));
  std::unique_ptr<ROCKSDB_NAMESPACE::MemoryMappedFileBuffer> mapped;
  EXPECT(file_system->NewMemoryMappedFileBuffer("/f", &mapped).IsNotSupported());
  FileOptions options;
  options.use_direct_reads = options.use_direct_writes = true;
  std::unique_ptr<FSRandomAccessFile> random;
  EXPECT_OK(file_system->NewRandomAccessFile("/f", options, &random, nullptr));
  EXPECT(random->use_direct_io() && random->Prefetch(0, 100, kIo, nullptr).IsNotSupported());
  Slice read;
  EXPECT(random->Read(0, 10, kIo, &read, nullptr, nullptr).IsInvalidArgument());
  char id[100];
  EXPECT(random->GetUniqueId(id, sizeof id) == 0);
  // Asynchronous reads are complete when they return.
  std::string scratch(100, 0), seen;
  FSReadRequest request;
  request.offset = 500;
  request.len = scratch.size();
  request.scratch = scratch.data();
  void* handle = &handle;
  ROCKSDB_NAMESPACE::IOHandleDeleter deleter;
  const auto done = [](const FSReadRequest& found, void* into) {
    *static_cast<std::string*>(into) = Kind(found.status) + found.result.ToString();
  };
  EXPECT_OK(random->ReadAsync(request, kIo, done, &seen, &handle, &deleter, nullptr));
  EXPECT(seen == "OK" + Bytes(1, 10000).substr(500, 100) && handle == nullptr);
  std::vector<void*> none;
  EXPECT_OK(file_system->Poll(none, 0));
  EXPECT_OK(file_system->AbortIO(none));
  std::unique_ptr<FSSequentialFile> sequential;
  EXPECT_OK(file_system->NewSequentialFile("/f", options, &sequential, nullptr));
  EXPECT_OK(sequential->PositionedRead(9990, 100, kIo, &read, scratch.data(), nullptr));
  EXPECT(sequential->use_direct_io() && read.size() == 10);
  std::unique_ptr<FSWritableFile> file;
  EXPECT_OK(file_system->NewWritableFile("/g", options, &file, nullptr));
  // Writes within and behind the file.
  for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{0, 8192}, {4096, 4096}, {8192, 100}, {4096, 9000}}) {
    EXPECT_OK(file->PositionedAppend(Bytes(offset + length, length), offset, kIo, nullptr));
  }
  EXPECT_OK(file->PositionedAppend("end", 20000, kIo, ROCKSDB_NAMESPACE::DataVerificationInfo(), nullptr));
  EXPECT(file->GetFileSize(kIo, nullptr) == 20003);
  EXPECT_OK(file->Truncate(13096, kIo, nullptr));
  EXPECT_OK(file->Append("more", kIo, nullptr));
  EXPECT_OK(file->Close(kIo, nullptr));
  EXPECT_OK(file->Close(kIo, nullptr));
  EXPECT(file->Append("late", kIo, nullptr).IsIOError() && file->Sync(kIo, nullptr).IsIOError());
  std::string text;
  EXPECT_OK(ReadFileToString(file_system.get(), "/g", &text));
  EXPECT(text == Bytes(8192, 8192).substr(0, 4096) + Bytes(13096, 9000) + "more");
}

// RocksDB's own file system cannot do this.
void TruncateByName(const std::string& place) {
  std::shared_ptr<FileSystem> file_system;
  EXPECT_OK(rocksdb_polder::OpenFileSystem("polder://" + place + "/roots.polder?root=/truncated", &file_system));
  EXPECT(file_system->Truncate("/none", 0, kIo, nullptr).IsPathNotFound());
  EXPECT(file_system->Truncate("/", 0, kIo, nullptr).IsIOError());
  std::unique_ptr<FSWritableFile> file;
  EXPECT_OK(file_system->NewWritableFile("/f", FileOptions(), &file, nullptr));
  std::string text = Bytes(4, 10000);
  EXPECT_OK(file->Append(text, kIo, nullptr));
  for (const size_t size : {5000, 300, 9000}) {
    EXPECT_OK(file_system->Truncate("/f", size, kIo, nullptr));
    text.resize(size);
    // A writer goes on at the new end.
    if (file) {
      EXPECT(file->GetFileSize(kIo, nullptr) == size);
      EXPECT_OK(file->Append("end", kIo, nullptr));
      text += "end";
    }
    std::string found;
    EXPECT_OK(ReadFileToString(file_system.get(), "/f", &found));
    EXPECT(found == text);
    if (size == 300) {
      EXPECT_OK(file->Close(kIo, nullptr));
      file.reset();
    }
  }
}

// Appends, syncs and reads of several threads.
void Threads(const std::string& place) {
  std::shared_ptr<FileSystem> file_system;
  EXPECT_OK(rocksdb_polder::OpenFileSystem("polder://" + place + "/roots.polder?root=/threads", &file_system));
  std::unique_ptr<FSWritableFile> file;
  EXPECT_OK(file_system->NewWritableFile("/log", FileOptions(), &file, nullptr));
  const std::string all = Bytes(9, 2 << 20);
  std::atomic<bool> is_done{false};
  std::atomic<int> wrong{0};
  std::thread syncs([&] {
    while (!is_done) {
      if (!file->Sync(kIo, nullptr).ok()) wrong++;
    }
  });
  std::thread reads([&] {
    std::unique_ptr<FSRandomAccessFile> random;
    if (!file_system->NewRandomAccessFile("/log", FileOptions(), &random, nullptr).ok()) wrong++;
    std::string scratch(all.size(), 0);
    while (!is_done) {
      const uint64_t size = file->GetFileSize(kIo, nullptr);
      Slice read;
      if (!random->Read(0, all.size(), kIo, &read, scratch.data(), nullptr).ok()) wrong++;
      if (read.size() < size || Slice(all.data(), read.size()) != read) wrong++;
    }
  });
  for (size_t done = 0; done < all.size();) {
    const size_t length = std::min<size_t>(all.size() - done, 1 + done % 3001);
    if (!file->Append(Slice(all.data() + done, length), kIo, nullptr).ok()) wrong++;
    done += length;
  }
  is_done = true;
  syncs.join();
  reads.join();
  Expect(wrong == 0, std::to_string(wrong) + " results of threads are wrong");
}

}  // namespace

void TestVolumes(const std::string& place, const std::string& self) {
  Uris(place);
  Roots(place);
  OpenAndClose(place);
  InUse(place, self);
  ReadOnly(place);
  ExitWithoutClosing(place, self);
  Full(place);
  NearlyFull(place);
  NotSupported(place);
  TruncateByName(place);
  Threads(place);
}

}  // namespace rocksdb_polder_tests
