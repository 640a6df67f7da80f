#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

/// The thread that writes segments, one per process. It uses only files and plain memory,
/// never MLX, and runs while any folder is open.
namespace h2o {

/// A folder with segments to write.
class SegmentWork {
 public:
  virtual ~SegmentWork() = default;

  /// Writes one segment, with the lock released meanwhile. Returns whether more segments
  /// wait.
  virtual bool write_one(std::unique_lock<std::mutex>& lock) = 0;
};

class SegmentWriter {
 public:
  /// The writer of this process; a forked child has its own.
  static SegmentWriter& shared();

  /// Guards the writer and the data that SegmentWork shares with it.
  std::mutex mutex;

  /// Notified after each write; wait for it with `mutex`.
  std::condition_variable progress;

  /// Bytes that wait in memory, all folders together.
  int64_t waiting = 0;

  /// The thread starts with the first attached folder, and ends with the last.
  void attach();
  void detach();

  /// Queues `work` behind earlier work. Call it with the lock held.
  void enqueue(SegmentWork& work);

  /// Waits until `work` is neither queued nor being written. Call it with the lock held.
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
