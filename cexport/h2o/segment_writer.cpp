#include "segment_writer.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#ifdef __APPLE__
#include <pthread/qos.h>
#endif
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <atomic>

#include "segment_folder.h"

namespace h2o {

namespace {

/// Lowers the thread's priority in favor of generation.
void lower_priority() {
#if defined(__APPLE__)
  pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#elif defined(__linux__)
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
#endif
}

/// Blocks signals, which are for the program's own threads. A file over the size limit
/// then gives an error instead of a signal.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

struct Owned {
  pid_t process;
  SegmentWriter writer;
};

} // namespace

SegmentWriter& SegmentWriter::shared() {
  // Never destroyed, because at exit its thread may still run, and after a fork its mutex
  // may be locked.
  static std::atomic<Owned*> owned{nullptr};
  Owned* existing = owned.load();
  if (existing == nullptr || existing->process != ::getpid()) {
    auto* fresh = new Owned{::getpid(), {}};
    if (owned.compare_exchange_strong(existing, fresh)) {
      return fresh->writer;
    }
    delete fresh;
  }
  return owned.load()->writer;
}

void SegmentWriter::attach() {
  std::unique_lock lock(mutex);
  progress.wait(lock, [this] { return !ending_; });
  if (attached_ == 0) {
    thread_ = std::thread([this] { run(); });
  }
  attached_ += 1;
}

void SegmentWriter::detach() {
  std::unique_lock lock(mutex);
  if (--attached_ > 0) {
    return;
  }
  ending_ = true;
  begin_.notify_one();
  lock.unlock();
  thread_.join();
  lock.lock();
  ending_ = false;
  progress.notify_all();
}

void SegmentWriter::enqueue(SegmentFolder& folder) {
  if (std::find(queue_.begin(), queue_.end(), &folder) == queue_.end()) {
    queue_.push_back(&folder);
    begin_.notify_one();
  }
}

void SegmentWriter::withdraw(SegmentFolder& folder, std::unique_lock<std::mutex>& lock) {
  std::erase(queue_, &folder);
  progress.wait(lock, [&] { return current_ != &folder; });
  std::erase(queue_, &folder);
}

void SegmentWriter::run() {
  block_signals();
  lower_priority();
  std::unique_lock lock(mutex);
  while (!ending_) {
    if (queue_.empty()) {
      begin_.wait(lock);
      continue;
    }
    current_ = queue_.front();
    queue_.pop_front();
    const bool more = current_->write_one(lock);
    if (more) {
      enqueue(*current_);
    }
    current_ = nullptr;
    progress.notify_all();
  }
}

} // namespace h2o
