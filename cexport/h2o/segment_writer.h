#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

/// The one thread of a process that writes segments. It touches files and plain memory only,
/// never MLX, and lives while any folder is open.
namespace h2o {

/// What has something to write.
class SegmentWork {
 public:
  virtual ~SegmentWork() = default;

  /// Writes one segment, unlocking the lock meanwhile; returns whether more waits.
  virtual bool write_one(std::unique_lock<std::mutex>& lock) = 0;
};

class SegmentWriter {
 public:
  /// This process's; a forked child has its own.
  static SegmentWriter& shared();

  /// Guards the writer and all that SegmentWork shares with it.
  std::mutex mutex;

  /// Told whenever something was written. Waited for with `mutex`.
  std::condition_variable progress;

  /// Bytes that wait in memory, for all folders.
  int64_t waiting = 0;

  /// The thread begins with the first to be attached, and ends with the last.
  void attach();
  void detach();

  /// Has `work` written after what was enqueued before. Needs the lock.
  void enqueue(SegmentWork& work);

  /// Returns when `work` is neither queued nor being written. Needs the lock.
  void withdraw(SegmentWork& work, std::unique_lock<std::mutex>& lock);

 private:
  void run();

  std::thread thread_;
  std::condition_variable begin_;
  std::deque<SegmentWork*> queue_;
  SegmentWork* current_ = nullptr;
  int attached_ = 0;
  bool ending_ = false;
};

} // namespace h2o
