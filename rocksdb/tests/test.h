// What the tests have in common.

#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

namespace rocksdb_polder_tests {

using ROCKSDB_NAMESPACE::Env;
using ROCKSDB_NAMESPACE::FileLock;
using ROCKSDB_NAMESPACE::FileOptions;
using ROCKSDB_NAMESPACE::FileSystem;
using ROCKSDB_NAMESPACE::FSDirectory;
using ROCKSDB_NAMESPACE::FSRandomAccessFile;
using ROCKSDB_NAMESPACE::FSRandomRWFile;
using ROCKSDB_NAMESPACE::FSReadRequest;
using ROCKSDB_NAMESPACE::FSSequentialFile;
using ROCKSDB_NAMESPACE::FSWritableFile;
using ROCKSDB_NAMESPACE::IOOptions;
using ROCKSDB_NAMESPACE::IOStatus;
using ROCKSDB_NAMESPACE::Slice;
using ROCKSDB_NAMESPACE::Status;

// Counts a check, and prints the text if it failed.
bool Expect(bool is_so, const std::string& otherwise);
// The number of checks so far, and of those that failed.
int Checks();
int Failures();

#define EXPECT(condition) \
  ::rocksdb_polder_tests::Expect((condition), std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition)
#define EXPECT_OK(status)                                                                                    \
  do {                                                                                                       \
    const ::rocksdb_polder_tests::Status found_status = (status);                                            \
    ::rocksdb_polder_tests::Expect(found_status.ok(), std::string(__FILE__ ":") + std::to_string(__LINE__) + \
                                                          ": " #status ": " + found_status.ToString());      \
  } while (false)

// The code of a status and what distinguishes it further, without its message.
std::string Kind(const Status& status);

// `length` bytes that follow from a seed.
std::string Bytes(uint64_t seed, size_t length);

// The length and a checksum.
std::string Digest(const Slice& bytes);

// The methods of the file system, compared with those of the host in the directory `host`.
void CompareWithPosix(const std::string& host, FileSystem* polder);

// What only this file system has: URIs, volumes and their errors. `self` is the program.
void TestVolumes(const std::string& place, const std::string& self);

// Writes keys to a database until it is killed, and prints each one that is acknowledged.
int WriteKeys(const std::string& uri, uint64_t first);

// Checks the database after that: all keys up to `last` have their values. Prints how many there are.
int VerifyKeys(const std::string& uri, uint64_t last);

}  // namespace rocksdb_polder_tests
