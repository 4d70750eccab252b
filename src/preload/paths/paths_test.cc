#include "preload/paths/paths.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace beeline::preload {
namespace {

TEST(Paths, DirectoriesOfRdmaDevicesAreRedirected) {
  for (const char* path :
       {"/sys/class/infiniband", "/sys/class/infiniband/", "/sys/class/infiniband/bee0/ports/1",
        "/sys/class/infiniband_verbs/abi_version", "/sys/class/misc/rdma_cm/abi_version", "/dev/infiniband",
        "/dev/infiniband/bee0", "/sys/devices/virtual/beeline/bee0"})
    EXPECT_TRUE(is_redirected(path)) << path;
}

TEST(Paths, EverythingElseIsLeftAlone) {
  for (const char* path :
       {"", "/", "/sys", "/sys/class", "/sys/class/net/eth0", "/sys/class/infinibandit",
        "/sys/class/infiniband_other", "/dev/null", "/dev/infinibands/x", "sys/class/infiniband",
        "/home/sys/class/infiniband", "/sys/class/misc", "/sys/class/misc/rdma_cmx", "/sysxclass/infiniband"})
    EXPECT_FALSE(is_redirected(path)) << path;
}

TEST(Paths, TheTreeStandsBeforeThePath) {
  std::array<char, 64> out{};
  ASSERT_TRUE(redirect("/tmp/t", "/dev/infiniband/bee0", out));
  EXPECT_STREQ(out.data(), "/tmp/t/dev/infiniband/bee0");
  EXPECT_FALSE(redirect("/tmp/t", "/dev/null", out));
  EXPECT_FALSE(redirect("", "/dev/infiniband/bee0", out)) << "no tree, no redirection";
}

TEST(Paths, WhatDoesNotFitIsNotRedirected) {
  const std::string path = "/dev/infiniband/bee0";
  std::array<char, 26> exact{};  // "/t2" + path + zero = 24
  EXPECT_TRUE(redirect("/t2", path, std::span(exact).first(24)));
  EXPECT_FALSE(redirect("/t2", path, std::span(exact).first(23)));
}

TEST(Paths, ResultsDoNotShowTheTree) {
  EXPECT_EQ(without_tree("/tmp/t", "/tmp/t/sys/devices/virtual/beeline/bee0"),
            "/sys/devices/virtual/beeline/bee0");
  EXPECT_EQ(without_tree("/tmp/t", "/tmp/tea/sys"), "/tmp/tea/sys");
  EXPECT_EQ(without_tree("/tmp/t", "/tmp/t"), "/tmp/t");
  EXPECT_EQ(without_tree("", "/sys"), "/sys");
}

TEST(Paths, OnlyTheConnectionManagersDeviceIsIt) {
  EXPECT_TRUE(is_connection_manager("/dev/infiniband/rdma_cm"));
  EXPECT_FALSE(is_connection_manager("/dev/infiniband/rdma_cm2"));
  EXPECT_FALSE(is_connection_manager("/dev/infiniband/bee0"));
}

}  // namespace
}  // namespace beeline::preload
