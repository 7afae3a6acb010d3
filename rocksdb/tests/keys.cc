// A database whose keys are acknowledged one by one, for tests that kill the writer.

#include <cinttypes>

#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "test.h"

namespace rocksdb_polder_tests {

namespace {

using namespace ROCKSDB_NAMESPACE;

std::string KeyOf(uint64_t number) {
  char key[32];
  snprintf(key, sizeof key, "%016" PRIu64, number);
  return key;
}

std::string ValueOf(uint64_t number) { return Bytes(number, 100 + number % 1000); }

// Tables so small that they are written and merged all the time.
Status Open(const std::string& uri, Env** env, std::shared_ptr<Env>* guard, std::unique_ptr<DB>* db) {
  Status status = Env::CreateFromUri(ConfigOptions(), "", uri, env, guard);
  if (!status.ok()) return status;
  Options options;
  options.env = *env;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.write_buffer_size = 128 << 10;
  options.target_file_size_base = 128 << 10;
  options.max_bytes_for_level_base = 512 << 10;
  DB* opened = nullptr;
  status = DB::Open(options, "/keys", &opened);
  db->reset(opened);
  return status;
}

int Report(const char* what, const Status& status) {
  fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  return 1;
}

}  // namespace

int WriteKeys(const std::string& uri, uint64_t first) {
  Env* env = nullptr;
  std::shared_ptr<Env> guard;
  std::unique_ptr<DB> db;
  const Status status = Open(uri, &env, &guard, &db);
  if (!status.ok()) return Report("open", status);
  WriteOptions synced;
  synced.sync = true;
  for (uint64_t number = first;; number++) {
    const Status put = db->Put(synced, KeyOf(number), ValueOf(number));
    if (!put.ok()) return Report("put", put);
    printf("%" PRIu64 "\n", number);
    fflush(stdout);
  }
}

int VerifyKeys(const std::string& uri, uint64_t last) {
  Env* env = nullptr;
  std::shared_ptr<Env> guard;
  std::unique_ptr<DB> db;
  Status status = Open(uri, &env, &guard, &db);
  if (!status.ok()) return Report("open", status);
  status = db->VerifyChecksum();
  if (!status.ok()) return Report("verify", status);
  uint64_t next = 1;
  std::unique_ptr<Iterator> each(db->NewIterator(ReadOptions()));
  for (each->SeekToFirst(); each->Valid(); each->Next(), next++) {
    if (each->key() != KeyOf(next) || each->value() != ValueOf(next)) {
      fprintf(stderr, "key %" PRIu64 " is missing or has another value\n", next);
      return 1;
    }
  }
  if (!each->status().ok()) return Report("iterate", each->status());
  if (next <= last) {
    fprintf(stderr, "keys up to %" PRIu64 " were acknowledged, and the last one is %" PRIu64 "\n", last, next - 1);
    return 1;
  }
  printf("%" PRIu64 "\n", next - 1);
  each.reset();
  status = db->Close();
  return status.ok() ? 0 : Report("close", status);
}

}  // namespace rocksdb_polder_tests
