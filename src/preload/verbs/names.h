// The functions of libibverbs under their own names: the header wraps some in macros, for programs that call
// them. The library that offers them needs the bare names.
#pragma once

#include <infiniband/verbs.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_gid_ex
#undef ibv_query_gid_table

extern "C" {
// Exported by libibverbs, declared in its driver.h only, which is not installed everywhere.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type);
int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, std::uint8_t* mac,
                                std::uint16_t* vlan);
}
