#include "preload/tree/tree.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "preload/tree/owner.h"

namespace beeline::preload {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class TreeTest : public ::testing::Test {
 public:
  TreeTest() {
    std::string name = (fs::temp_directory_path() / "beeline-tree-test.XXXXXX").string();
    where_ = ::mkdtemp(name.data());
    fs::create_directories(machine());
    port::Interface eth;
    eth.name = "eth7";
    eth.up = true;
    eth.mtu = 1500;
    eth.mac = {2, 0, 0, 0, 0, 7};
    eth.addresses = {IpAddress::v4(192, 0, 2, 7)};
    devices_ = nic::make_devices(std::span(&eth, 1));
  }
  ~TreeTest() override { fs::remove_all(where_); }

 protected:
  fs::path machine() const { return where_ / "machine"; }
  Tree make(Provider provider = Provider::automatic) {
    auto tree = Tree::make(devices_, {where_, machine(), provider});
    EXPECT_TRUE(tree) << tree.error().message;
    return std::move(*tree);
  }

  fs::path where_;
  std::vector<nic::Device> devices_;
};

TEST_F(TreeTest, HasTheDevicesAsTheKernelShowsThem) {
  const Tree tree = make();
  const fs::path device = tree.path() / "sys/class/infiniband/bee0";
  EXPECT_EQ(content(device / "node_type"), "1: CA\n");
  EXPECT_EQ(content(device / "node_guid"), "0000:00ff:fe00:0007\n");
  EXPECT_EQ(content(device / "ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(content(device / "ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:c000:0207\n");
  EXPECT_EQ(content(device / "ports/1/gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(content(device / "ports/1/gid_attrs/ndevs/0"), "eth7\n");
  EXPECT_EQ(fs::read_symlink(device / "device/net/eth7"), "/sys/class/net/eth7");
  EXPECT_EQ(fs::canonical(device / "device"),
            fs::canonical(tree.path() / "sys/devices/virtual/beeline/bee0"));
  EXPECT_EQ(fs::read_symlink(tree.path() / "dev/infiniband/bee0"), "/dev/null");
  EXPECT_EQ(fs::read_symlink(tree.path() / "dev/infiniband/rdma_cm"), "/dev/null");
  EXPECT_EQ(content(tree.path() / "sys/class/infiniband_verbs/abi_version"), "6\n");
}

TEST_F(TreeTest, IsPrivateAndGoesWithTheObject) {
  fs::path path;
  {
    const Tree tree = make();
    path = tree.path();
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(TreeTest, TheMachinesOwnDevicesAreLinkedUnlessTheCardStandsAlone) {
  fs::create_directories(machine() / "sys/class/infiniband/mlx5_0");
  fs::create_directories(machine() / "sys/class/misc/rdma_cm");
  fs::create_directories(machine() / "dev/infiniband");
  std::ofstream(machine() / "dev/infiniband/rdma_cm") << "the machine's";
  std::ofstream(machine() / "sys/class/misc/rdma_cm/abi_version") << "5";
  const Tree both = make();
  EXPECT_TRUE(fs::is_directory(both.path() / "sys/class/infiniband/mlx5_0"));
  EXPECT_TRUE(fs::is_directory(both.path() / "sys/class/infiniband/bee0"));
  EXPECT_EQ(fs::read_symlink(both.path() / "dev/infiniband/rdma_cm"), machine() / "dev/infiniband/rdma_cm");
  EXPECT_EQ(content(both.path() / "sys/class/misc/rdma_cm/abi_version"), "5");
  const Tree alone = make(Provider::soft);
  EXPECT_FALSE(fs::exists(alone.path() / "sys/class/infiniband/mlx5_0"));
  EXPECT_EQ(fs::read_symlink(alone.path() / "dev/infiniband/rdma_cm"), "/dev/null");
}

TEST_F(TreeTest, APlaceThatIsNotThereIsAnError) {
  const auto tree = Tree::make(devices_, {where_ / "nowhere", machine(), Provider::soft});
  ASSERT_FALSE(tree);
  EXPECT_NE(tree.error().message.find("nowhere"), std::string::npos);
}

TEST_F(TreeTest, SweepingTakesTheDeadOnly) {
  const Tree alive = make();
  const auto self = this_process_as_owner();
  ASSERT_TRUE(self);
  Owner dead = *self;
  ++dead.start;  // the number was used again
  Owner hidden = dead;
  ++hidden.pid_namespace;
  for (const Owner& owner : {dead, hidden}) fs::create_directory(where_ / directory_name(owner));
  fs::create_directory(where_ / "beeline-run.other");
  EXPECT_EQ(sweep_trees(where_), 1);
  EXPECT_FALSE(fs::exists(where_ / directory_name(dead)));
  EXPECT_TRUE(fs::exists(where_ / directory_name(hidden)));
  EXPECT_TRUE(fs::exists(where_ / "beeline-run.other"));
  EXPECT_TRUE(fs::exists(alive.path()));
}

TEST(TreeOwner, NamesAreReadBack) {
  const Owner owner{4026531836, 77, 123456};
  EXPECT_EQ(parse_directory_name(directory_name(owner)), owner);
  for (const char* name :
       {"", "beeline-run", "beeline-run.", "beeline-run.1.2.3", "beeline-run.x.2.3.abc",
        "beeline-run.1.-2.3.abc", "beeline-run.1.2.99999999999999999999999.abc", "other.1.2.3.abc"})
    EXPECT_FALSE(parse_directory_name(name)) << name;
}

TEST(TreeOwner, TheProgramsNameMayHoldAnything) {
  EXPECT_EQ(start_in_stat("7 (a) b) 1 2) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4711 23"), 4711u);
  EXPECT_FALSE(start_in_stat("7 (a) S 4 5"));
  EXPECT_FALSE(start_in_stat(""));
}

}  // namespace
}  // namespace beeline::preload
