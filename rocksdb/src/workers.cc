#include "workers.h"

#include <algorithm>
#include <system_error>

namespace rocksdb_polder {

namespace {

// A log and some tables are written at the same time.
size_t ThreadsMax() { return std::clamp<size_t>(std::thread::hardware_concurrency(), 2, 8); }

}  // namespace

bool Workers::Try(std::function<void()> task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (is_ending_) return false;
  if (idle_ <= tasks_.size()) {
    if (threads_.size() >= ThreadsMax()) return false;
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {
      return false;
    }
    idle_++;
  }
  tasks_.push_back(std::move(task));
  changed_.notify_one();
  return true;
}

void Workers::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    idle_--;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    idle_++;
  }
}

void Workers::End() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace rocksdb_polder
