// A recording answers as the host did, and no secret leaves the host in it.
#include "doctor/host/recording.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "doctor/host/hosts_for_tests.h"
#include "doctor/host/live.h"
#include "doctor/host/merge.h"
#include "doctor/host/report.h"

namespace beeline::doctor {
namespace {

std::string scratch(const std::string& name) {
  return testing::TempDir() + fmt::format("beeline-{}-{}", ::getpid(), name);
}

struct Planted {
  const char *line, *secret;
};
constexpr Planted planted[] = {
    {"NCCL_X=http://alice:hunter2pass@proxy:3128/", "hunter2pass"},
    {"UCX_AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLE", "wJalrXUtnFEMIK7MDENG"},
    {"key id AKIAIOSFODNN7EXAMPLE was used", "AKIAIOSFODNN7EXAMPLE"},
    {"HF_TOKEN: hf_abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnop"},
    {"WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123"},
    {"Authorization: Bearer abc.def.ghi", "abc.def.ghi"},
    {"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl seen", "eyJhbGciOiJIUzI1NiJ9"},
    {"https://store/x?se=1&sig=Zm9vYmFyYmF6cXV4", "Zm9vYmFyYmF6cXV4"},
    {"mount -o username=bob,password=s3cr3tword //nas/x", "s3cr3tword"},
    {"clone with ghp_0123456789abcdefghijABCDEFGHIJ", "ghp_0123456789abcdef"},
    {"run --db-password topsecretvalue --fast", "topsecretvalue"},
    {"BEELINE_KEY=0pensesame11", "0pensesame11"},
    {"db_pass: 'correct horse battery'", "correct horse battery"},
    {"-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
     "MIIEpAIBAAKCAQEA7"},
};

Tree with_secrets() {
  auto tree = card_host(connectx7);
  for (const auto& row : planted) tree.commands["dmesg"] += fmt::format("[  1.0] {}\n", row.line);
  tree.facts["environment"] = "NCCL_X=http://alice:hunter2pass@proxy:3128/\nNCCL_DEBUG=INFO\n";
  return tree;
}

Readings recorded(Tree tree) {
  Recorder recorder(tree);
  examine_host(recorder, *choose_checks(""));
  return recorder.readings();
}

std::string everything(const Readings& readings) {
  std::string text;
  for (const auto& [question, reading] : readings)
    text += question.name + "\n" + reading.value + "\n" + reading.why + "\n";
  return text;
}

TEST(Recording, HoldsNoSecret) {
  const auto raw = everything(recorded(with_secrets()));
  const auto path = scratch("secrets.tar.zst");
  ASSERT_TRUE(write_recording(path, cleaned(recorded(with_secrets()), nullptr)));
  const auto back = read_recording(path);
  ASSERT_TRUE(back) << back.error().message;
  const auto text = everything(*back);
  for (const auto& row : planted) {
    EXPECT_TRUE(contains(raw, row.secret)) << row.secret;  // it was there
    EXPECT_FALSE(contains(text, row.secret)) << row.secret;
  }
  EXPECT_TRUE(contains(text, "NCCL_DEBUG=INFO"));
  ::unlink(path.c_str());
}

std::map<std::string, Status> statuses(Evidence& evidence) {
  std::map<std::string, Status> all;
  for (const auto& result : examine_host(evidence, *choose_checks("")).results)
    all[std::string(result.check->id)] = result.status;
  return all;
}

TEST(Recording, IsJudgedAsTheHostWas) {
  for (const auto& host : {card_host(connectx7), card_host(broadcom), efa_host(), rxe_host(), bare_host()}) {
    auto tree = host;
    tree.facts["environment"] = "NCCL_IB_HCA=mlx5_9\n";
    const auto live = statuses(tree);
    Pseudonyms pseudonyms("node7");
    const auto path = scratch("host.tar.zst");
    for (auto* names : {static_cast<Pseudonyms*>(nullptr), &pseudonyms}) {
      ASSERT_TRUE(write_recording(path, cleaned(recorded(tree), names)));
      auto root = open_root(path);
      ASSERT_TRUE(root) << root.error().message;
      EXPECT_EQ(statuses(**root), live);
    }
    ::unlink(path.c_str());
  }
}

TEST(Recording, PseudonymsKeepWhichAddressesArePublic) {
  for (const char* name : {"vm", "a-host.example.org"})
    for (const char* ip : {"8.8.8.8", "198.18.3.4", "192.0.2.7", "100.64.1.1", "172.20.0.9", "11.0.1.2"}) {
      auto tree = bare_host();
      tree.facts["hostname"] = name;
      tree.facts["addresses"] = fmt::format("eth0 {}/24\n", ip);
      Pseudonyms pseudonyms(name);
      const auto clean = cleaned(recorded(tree), &pseudonyms);
      EXPECT_FALSE(contains(everything(clean), ip)) << ip;
      EXPECT_EQ(clean.at({Kind::fact, "hostname"}).value, "host-1");
      Recording recording(clean);
      EXPECT_EQ(statuses(recording), statuses(tree)) << ip;
    }
}

TEST(Recording, PseudonymsHideNamesAndKeepRelations) {
  Pseudonyms pseudonyms("node7");
  const auto text = pseudonyms.apply(
      "node7 10.0.1.1/24 10.0.1.2 8.8.8.8 b8:3f:d2:c0:00:01 fe80:0000:0000:0000:ba3f:d2ff:fec0:0001 "
      "0000:11:00.0 28.39.1002");
  for (const char* real : {"node7", "10.0.1.1/", "8.8.8.8", "c0:00:01", "fec0:0001"})
    EXPECT_FALSE(contains(text, real)) << text;
  for (const char* kept : {"0000:11:00.0", "28.39.1002", "/24", "b8:3f:d2"})
    EXPECT_TRUE(contains(text, kept)) << text;
  EXPECT_EQ(pseudonyms.apply("10.0.1.1"), pseudonyms.apply("10.0.1.1"));
  EXPECT_EQ(pseudonyms.apply("0.0.0.0 127.0.0.1 feedback node77 decade"),
            "0.0.0.0 127.0.0.1 feedback node77 decade");
}

TEST(Recording, DamagedOnesAreRefusedInOneSentence) {
  const auto path = scratch("damaged");
  std::ofstream(path) << "not an archive";
  EXPECT_FALSE(open_root(path));
  EXPECT_FALSE(open_root(path + "-missing"));
  EXPECT_FALSE(open_root("/dev/null"));
  const auto good = scratch("good.tar.zst");
  ASSERT_TRUE(write_recording(good, cleaned(recorded(card_host(connectx7)), nullptr)));
  std::ifstream file(good, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  for (const std::size_t size : {std::size_t{10}, bytes.size() / 2, bytes.size() - 9}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes.substr(0, size);
    EXPECT_FALSE(open_root(path)) << size;
  }
  EXPECT_FALSE(write_recording("/nonexistent/x.tar.zst", {}));
  ::unlink(path.c_str());
  ::unlink(good.c_str());
}

TEST(Recording, AnUnpackedOneLeadsNowhereElse) {
  namespace fs = std::filesystem;
  const fs::path folder = scratch("unpacked"), outside = scratch("outside");
  fs::create_directory(folder);
  std::ofstream(outside) << "SwapTotal: 1000 kB\nSwapFree: 1 kB\n";
  std::ofstream(folder / "inside") << "SwapTotal: 1000 kB\nSwapFree: 1 kB\n";
  fs::create_symlink(outside, folder / "link");
  const auto read = [&](const std::string& entry) {
    std::ofstream(folder / "beeline-recording.json") << nlohmann::json{
        {"version", 1},
        {"readings", {{{"kind", "file"}, {"name", "/proc/meminfo"}, {"access", "found"}, {"entry", entry}}}}};
    auto root = open_root(folder);
    return root ? (*root)->read({Kind::file, "/proc/meminfo"}).value : "refused";
  };
  EXPECT_TRUE(contains(read("inside"), "SwapTotal"));
  for (const std::string& entry : {outside.string(), "../" + outside.filename().string(), std::string("link"),
                                   std::string("."), std::string("/dev/zero"), std::string()})
    EXPECT_EQ(read(entry), "") << entry;
  fs::remove_all(folder);
  fs::remove(outside);
}

TEST(Live, CommandsEndAndFilesAreTold) {
  LiveHost host(std::map<std::string, std::string>{{"hostname", "here"}});
  EXPECT_EQ(host.read({Kind::fact, "hostname"}).value, "here");
  EXPECT_TRUE(host.read({Kind::file, "/proc/self/limits"}).found());
  EXPECT_EQ(host.read({Kind::file, "/nonexistent"}).access, Access::absent);
  const auto missing = host.read({Kind::command, "no-such-program-here"});
  EXPECT_TRUE(missing.unreadable());
  EXPECT_TRUE(contains(missing.why, "not installed"));
  EXPECT_EQ(host.read({Kind::command, "echo hello"}).value, "hello\n");
  EXPECT_FALSE(host.read({Kind::command, "yes"}).found());  // never ends
}

TEST(Merge, ShowsOnlyWhatDiffers) {
  auto one = card_host(connectx7), other = one;
  other.facts["hostname"] = "node8";
  other.files["/sys/class/net/ens1/mtu"] = other.files["/sys/class/net/ens2/mtu"] = "1500\n";
  const auto json = [](Tree& tree) { return to_json(examine_host(tree, *choose_checks(""))); };
  const auto document = nlohmann::json::parse(json(one));
  EXPECT_EQ(document["version"], 1);
  for (const auto& row : document["checks"])
    for (const char* key : {"id", "group", "status", "evidence", "cause", "fix", "source"})
      EXPECT_TRUE(row.at(key).is_string()) << key;
  const auto compare = [](const std::vector<NamedText>& reports) {
    return compare_reports(reports, SameHost::keep);
  };
  const auto compared = compare({{"a", json(one)}, {"b", json(other)}});
  ASSERT_TRUE(compared);
  const auto text = to_text(*compared, View{});
  EXPECT_TRUE(contains(text, "nic.mtu: ens1 MTU differs")) << text;
  EXPECT_FALSE(contains(text, "nic.firmware"));
  EXPECT_EQ(exit_status(*compared), 2);
  const auto same = compare({{"a", json(one)}, {"b", json(one)}});
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->differences.empty());
  EXPECT_EQ(exit_status(*same), 0) << to_text(*same, View{});
  for (const char* bad : {"", "[]", "{\"version\":1}", "{\"version\":1,\"checks\":[5]}"})
    EXPECT_FALSE(compare({{"a", json(one)}, {"b", bad}})) << bad;
}

TEST(Merge, ComparesTheMtusOfTheInterfacesThatBee0WouldUse) {
  auto one = bare_host();
  one.facts["addresses"] = "lo 127.0.0.1/8\neno1 192.168.1.7/24\ndocker0 172.17.0.1/16\n";
  one.files["/sys/class/net/lo/mtu"] = "65536\n";
  one.files["/sys/class/net/eno1/mtu"] = one.files["/sys/class/net/docker0/mtu"] = "1500\n";
  one.files["/sys/class/net/docker0/bridge/bridge_id"] = "8000.024200000000\n";
  auto other = one;
  other.facts["hostname"] = "node8";
  other.files["/sys/class/net/eno1/mtu"] = "1400\n";
  other.files["/sys/class/net/lo/mtu"] = other.files["/sys/class/net/docker0/mtu"] = "4000\n";
  const auto json = [](Tree& tree) { return to_json(examine_host(tree, *choose_checks(""))); };
  const auto compared = compare_reports({{"a", json(one)}, {"b", json(other)}}, SameHost::keep);
  ASSERT_TRUE(compared);
  ASSERT_EQ(compared->differences.size(), 1U) << to_text(*compared, View{});
  const auto& difference = compared->differences.front();
  EXPECT_EQ(difference.check + ": " + difference.what, "nic.mtu: eno1 MTU");
  EXPECT_EQ(difference.hosts_by_value,
            (std::map<std::string, std::vector<std::string>>{{"1400", {"node8"}}, {"1500", {"node7"}}}));
}

TEST(Merge, RanksThatSayTheSameAreOneHostAndSharedAlarmsStandOnce) {
  auto alike = card_host(connectx7), other = alike;
  alike.facts["environment"] = other.facts["environment"] = "NCCL_IB_DISABLE=1\nNCCL_DEBUG=TRACE\n";
  other.files["/sys/class/net/ens1/mtu"] = other.files["/sys/class/net/ens2/mtu"] = "1500\n";
  const auto json = [](Tree& tree) { return to_json(examine_host(tree, *choose_checks(""))); };
  const std::vector<NamedText> ranks = {
      {"rank 0", json(alike)}, {"rank 1", json(alike)}, {"rank 2", json(other)}, {"rank 3", json(alike)}};
  const auto compared = compare_reports(ranks, SameHost::fold);
  ASSERT_TRUE(compared);
  EXPECT_EQ(compared->hosts, (std::vector<std::string>{"node7 (rank 0)", "node7 (rank 2)"}));
  EXPECT_EQ(compared->reports, 4U);
  EXPECT_EQ(exit_status(*compared), 3);
  const auto text = to_text(*compared, View{});
  EXPECT_EQ(text.substr(0, text.find(':')), "2 hosts, 4 reports");
  EXPECT_TRUE(contains(text, "\nfailure nccl.ib_disable: ")) << text;
  EXPECT_TRUE(contains(text, "\nwarning nccl.debug: ")) << text;
  EXPECT_LT(text.find("nic.mtu: status differs"), text.find("on all of them"));
  EXPECT_EQ(text.find("nccl.debug"), text.rfind("nccl.debug"));
  EXPECT_FALSE(contains(text, "\x1b"));
  EXPECT_TRUE(contains(to_text(*compared, {true, false}), "\x1b[1;31mfailure"));
  // Without folding every report is one of its own.
  EXPECT_EQ(compare_reports(ranks, SameHost::keep)->hosts.size(), 4U);
  auto short_of_one = *compare_reports({ranks[0]}, SameHost::fold);
  short_of_one.missing = {"node8: rank 4\x1b[31m"};
  EXPECT_EQ(exit_status(short_of_one), 1);
  EXPECT_TRUE(contains(to_text(short_of_one, View{}), "did not answer: node8: rank 4\\x1b[31m\n"));
}

TEST(Report, NamesAFewOfManyFilesThatWereRead) {
  auto tree = rxe_host();
  for (int i = 10; i < 1024; ++i) {
    tree.files[fmt::format("/sys/class/infiniband/rxe0/ports/1/gids/{}", i)] =
        "0000:0000:0000:0000:0000:0000:0000:0000\n";
  }
  const auto report = examine_host(tree, *choose_checks("roce.gid_present"));
  EXPECT_GT(report.results.front().trail.size(), 1000U);
  const auto text = to_text(report, {false, true});
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 60) << text;
  EXPECT_TRUE(contains(text, "/sys/class/infiniband/rxe0/ports/1/gids/: ")) << text;
}

}  // namespace
}  // namespace beeline::doctor
