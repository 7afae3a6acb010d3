// Threads that write while the caller goes on.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rocksdb_polder {

class Workers {
 public:
  ~Workers() { End(); }

  // Runs the task in a thread of its own, unless all threads are busy: then it returns false, and the caller does it.
  bool Try(std::function<void()> task);
  // Ends the threads after their tasks.
  void End();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  // Threads without a task.
  size_t idle_ = 0;
  bool is_ending_ = false;
};

}  // namespace rocksdb_polder
