// test_rocksdb_polder DIRECTORY           runs all tests; the directory is empty
// test_rocksdb_polder hold URI            opens a volume until its input ends
// test_rocksdb_polder leak URI            writes a file, and exits without closing anything
// test_rocksdb_polder write URI FIRST     writes keys with syncs from number FIRST on, and prints each one
// test_rocksdb_polder verify URI LAST     checks that all keys up to number LAST are there

#include <cstring>

#include "../rocksdb_polder.h"
#include "test.h"

namespace rocksdb_polder_tests {

namespace {

int checks = 0;
int failures = 0;

int Hold(const std::string& uri) {
  std::shared_ptr<FileSystem> file_system;
  const IOStatus status = rocksdb_polder::OpenFileSystem(uri, &file_system);
  printf("%s\n", Kind(status).c_str());
  fflush(stdout);
  while (getchar() != EOF) {
  }
  return 0;
}

// Used by a static object when the thread-local variables of the main thread are gone, also by a call that fails.
struct AtExit {
  ~AtExit() {
    if (file_system != nullptr && !file_system->FileExists("/none", IOOptions(), nullptr).IsNotFound()) abort();
  }
  FileSystem* file_system = nullptr;
} at_exit;

int Leak(const std::string& uri) {
  auto* leaked = new std::shared_ptr<FileSystem>;
  auto* file = new std::unique_ptr<FSWritableFile>;
  EXPECT_OK(rocksdb_polder::OpenFileSystem(uri, leaked));
  EXPECT_OK((*leaked)->NewWritableFile("/leaked", FileOptions(), file, nullptr));
  EXPECT_OK((*file)->Append("kept without a sync", IOOptions(), nullptr));
  at_exit.file_system = leaked->get();
  EXPECT((*leaked)->FileExists("/none", IOOptions(), nullptr).IsNotFound());
  exit(failures);
}

int All(const std::string& place, const std::string& self) {
  std::shared_ptr<FileSystem> polder;
  EXPECT_OK(rocksdb_polder::OpenFileSystem("polder://" + place + "/compare.polder?root=/inner&size=256M", &polder));
  if (!polder) return 1;
  CompareWithPosix(place, polder.get());
  polder.reset();
  TestVolumes(place, self);
  printf("%d checks, %d failures\n", Checks(), Failures());
  return failures > 0 ? 1 : 0;
}

}  // namespace

bool Expect(bool is_so, const std::string& otherwise) {
  checks++;
  if (!is_so) {
    failures++;
    fprintf(stderr, "FAILED: %s\n", otherwise.c_str());
  }
  return is_so;
}

int Checks() { return checks; }
int Failures() { return failures; }

std::string Kind(const Status& status) {
  const std::string codes[] = {"OK",           "NotFound",     "Corruption", "NotSupported", "InvalidArgument",
                               "IOError",      "MergeInProgress", "Incomplete", "ShutdownInProgress", "TimedOut",
                               "Aborted",      "Busy"};
  const size_t code = static_cast<size_t>(status.code());
  std::string kind = code < sizeof(codes) / sizeof(codes[0]) ? codes[code] : std::to_string(code);
  if (status.subcode() != Status::kNone) kind += "/" + std::to_string(status.subcode());
  return kind;
}

std::string Bytes(uint64_t seed, size_t length) {
  std::string bytes(length, 0);
  uint64_t state = seed * 2654435761u + 12345;
  for (size_t i = 0; i < length; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = static_cast<char>(state >> 56);
  }
  return bytes;
}

std::string Digest(const Slice& bytes) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < bytes.size(); i++) hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 1099511628211u;
  return std::to_string(bytes.size()) + " bytes " + std::to_string(hash);
}

}  // namespace rocksdb_polder_tests

int main(int count, char** words) {
  using namespace rocksdb_polder_tests;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto is = [&](const char* word, int wanted) { return count == wanted && std::strcmp(words[1], word) == 0; };
  if (is("hold", 3)) return Hold(words[2]);
  if (is("leak", 3)) return Leak(words[2]);
  if (is("write", 4)) return WriteKeys(words[2], std::stoull(words[3]));
  if (is("verify", 4)) return VerifyKeys(words[2], std::stoull(words[3]));
  if (count == 2) return All(words[1], words[0]);
  fprintf(stderr, "the head of rocksdb/tests/main.cc has the arguments\n");
  return 2;
}
