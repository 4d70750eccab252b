#include "cli/ranks/meeting.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "bootstrap/record.h"
#include "cli/ranks/noticeboard.h"

namespace beeline::cli {
namespace {

using bootstrap::Deadline;

const IpAddress loopback = IpAddress::v4(127, 0, 0, 1);
const Secret secret = secret_of("secret", "job 7");

Collection open(int size) {
  auto collection = Collection::open({loopback}, {0}, size, secret);
  EXPECT_TRUE(collection);
  return std::move(*collection);
}

// What rank `rank` brings, from a thread of its own.
std::future<Result<int>> bring_later(const Collection& collection, int rank, const std::string& report,
                                     const Secret& known = secret, Duration patience = 30s) {
  return std::async(std::launch::async, [=, places = collection.endpoints()]() -> Result<int> {
    BEELINE_TRY(const auto rank0,
                find_rank0(places, known, rank, "host" + std::to_string(rank), Deadline(patience)));
    return bring(rank0, report, Deadline(30s));
  });
}

TEST(Meeting, EveryRankBringsItsReportAndHearsTheStatus) {
  auto collection = open(4);
  std::vector<std::future<Result<int>>> ranks;
  for (int rank = 1; rank < 4; ++rank)
    ranks.push_back(bring_later(collection, rank, std::string(300'000, static_cast<char>('0' + rank))));
  const auto all = collection.collect(Deadline(30s));
  collection.conclude(3);
  EXPECT_FALSE(all[0]);
  for (int rank = 1; rank < 4; ++rank) {
    ASSERT_TRUE(all[rank]) << rank;
    EXPECT_EQ(all[rank]->host, "host" + std::to_string(rank));
    EXPECT_EQ(all[rank]->report, std::string(300'000, static_cast<char>('0' + rank)));
    const auto status = ranks[rank - 1].get();
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(*status, 3);
  }
}

TEST(Meeting, WhoDoesNotComeCostsTheOthersNothing) {
  auto collection = open(4);
  auto second = bring_later(collection, 2, "two");
  const auto all = collection.collect(Deadline(2s));
  collection.conclude(1);
  EXPECT_FALSE(all[1]);
  EXPECT_TRUE(all[2]);
  EXPECT_FALSE(all[3]);
  EXPECT_EQ(second.get().value_or(-1), 1);
}

TEST(Meeting, StrangersAreSentAway) {
  auto collection = open(3);
  const auto place = collection.endpoints().front();
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 100; ++i) {  // more than are kept
    auto stranger = bootstrap::connect_to(place, Deadline(5s));
    if (!stranger) continue;
    const std::string words = i % 2 == 0 ? "GET / HTTP/1.0\r\n\r\n" : std::string(3, '\xBE');
    (void)::send(stranger->get(), words.data(), words.size(), MSG_NOSIGNAL);
    strangers.push_back(std::move(*stranger));
  }
  auto other_job = bring_later(collection, 1, "of another job", secret_of("secret", "job 8"), 1s);
  auto first = bring_later(collection, 1, "one"), second = bring_later(collection, 2, "two");
  const auto all = collection.collect(Deadline(30s));
  collection.conclude(0);
  ASSERT_TRUE(all[1] && all[2]);
  EXPECT_EQ(all[1]->report, "one");
  EXPECT_EQ(all[2]->report, "two");
  EXPECT_EQ(first.get().value_or(-1), 0);
  EXPECT_EQ(second.get().value_or(-1), 0);
  EXPECT_FALSE(other_job.get());
}

TEST(Meeting, RanksThatThereAreNotAreSentAway) {
  auto collection = open(3);
  auto zero = bring_later(collection, 0, "zero", secret, 1s);
  auto third = bring_later(collection, 3, "three", secret, 1s);
  const auto all = collection.collect(Deadline(3s));
  collection.conclude(0);
  EXPECT_FALSE(all[0] || all[1] || all[2]);
  EXPECT_FALSE(zero.get());
  EXPECT_FALSE(third.get());
}

TEST(Meeting, NothingIsToldToSomebodyElseOnThatPort) {
  auto listener = bootstrap::listen_on({loopback, 0});
  ASSERT_TRUE(listener);
  const auto place = bootstrap::local_endpoint(listener->get());
  std::string heard;
  auto stranger = std::async(std::launch::async, [&] {
    (void)bootstrap::wait_for(listener->get(), POLLIN, Deadline(20s));
    const Descriptor connection = bootstrap::accept_one(listener->get());
    const std::string words = "220 mail.example.org ESMTP, and some more words\r\n";
    (void)::send(connection.get(), words.data(), words.size(), MSG_NOSIGNAL);
    while (bootstrap::wait_for(connection.get(), POLLIN, Deadline(20s)).value_or(false)) {
      char piece[512];
      const auto got = ::recv(connection.get(), piece, sizeof piece, 0);
      if (got <= 0) break;
      heard.append(piece, static_cast<std::size_t>(got));
    }
  });
  EXPECT_FALSE(find_rank0({*place}, secret, 1, "host1", Deadline(1s)));
  stranger.wait();
  EXPECT_LT(heard.size(), 100u);
}

// A process manager that speaks PMI-1 to one process: answers by the table until it ends.
class Manager {
 public:
  explicit Manager(std::map<std::string, std::string> answers) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    mine_ = Descriptor(ends[0]);
    theirs_ = Descriptor(ends[1]);
    thread_ = std::thread([this, answers = std::move(answers)] { serve(answers); });
  }
  ~Manager() {
    theirs_.reset();
    thread_.join();
  }
  int descriptor() const { return theirs_.get(); }
  std::string asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void serve(const std::map<std::string, std::string>& answers) {
    std::string line;
    for (char c = 0; ::read(mine_.get(), &c, 1) == 1;) {
      line += c;
      if (c != '\n') continue;
      const auto command = line.substr(4, line.find_first_of(" \n") - 4);
      {
        const std::lock_guard lock(mutex_);
        asked_ += line;
      }
      line.clear();
      if (const auto answer = answers.find(command); answer != answers.end())
        (void)::send(mine_.get(), answer->second.data(), answer->second.size(), MSG_NOSIGNAL);
    }
  }
  Descriptor mine_, theirs_;
  mutable std::mutex mutex_;
  std::string asked_;
  std::thread thread_;
};

const std::map<std::string, std::string> usual = {
    {"init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"get_my_kvsname", "cmd=my_kvsname kvsname=kvs_7\n"},
    {"put", "cmd=put_result rc=0 msg=success\n"},
    {"barrier_in", "cmd=barrier_out\n"},
    {"get", "cmd=get_result rc=0 msg=success value=a;b=c,d\n"},
    {"finalize", "cmd=finalize_ack\n"}};

TEST(Pmi, PostsAndReads) {
  const Manager manager(usual);
  auto board = open_pmi(manager.descriptor(), Deadline(20s));
  ASSERT_TRUE(board) << board.error().message;
  ASSERT_TRUE((*board)->post("word", Deadline(20s)));
  EXPECT_EQ((*board)->read(Deadline(20s)).value_or(""), "a;b=c,d");
  (*board)->leave(Deadline(20s));
  EXPECT_EQ(manager.asked(),
            "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_my_kvsname\n"
            "cmd=put kvsname=kvs_7 key=beeline-doctor value=word\ncmd=barrier_in\n"
            "cmd=barrier_in\ncmd=get kvsname=kvs_7 key=beeline-doctor\ncmd=finalize\n");
}

TEST(Pmi, WhatIsNoAnswerIsAnError) {
  for (const char* bad : {"\n", "hello\n", "cmd=response_to_init rc=-1\n", "cmd=other rc=0\n"}) {
    auto answers = usual;
    answers["init"] = bad;
    const Manager manager(answers);
    EXPECT_FALSE(open_pmi(manager.descriptor(), Deadline(20s))) << bad;
  }
  auto answers = usual;
  answers["init"] = std::string(100'000, 'x');
  const Manager endless(answers);
  EXPECT_FALSE(open_pmi(endless.descriptor(), Deadline(20s)));
  EXPECT_FALSE(open_pmi(1'000'000, Deadline(20s)));
}

TEST(Pmi, ABarrierThatSomebodyDoesNotReachEnds) {
  auto answers = usual;
  answers.erase("barrier_in");
  const Manager manager(answers);
  auto board = open_pmi(manager.descriptor(), Deadline(20s));
  ASSERT_TRUE(board);
  const auto word = (*board)->read(Deadline(1s));
  ASSERT_FALSE(word);
  EXPECT_EQ(word.error().code, Errc::timed_out);
}

}  // namespace
}  // namespace beeline::cli
