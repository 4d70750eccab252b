# Runs `beeline bench` for every operation with real ranks, and reads its table and JSON.
function(run_bench operation result_of_wrong)
  set(json ${WORK}/bench_${operation}.json)
  execute_process(COMMAND ${BEELINE} bench ${operation} --ranks 3 -b 4 -e 64K -f 128 -n 3 -w 1 ${ARGN} --json ${json}
                  OUTPUT_VARIABLE table ERROR_VARIABLE errors RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "bench ${operation} ended with ${status}:\n${table}\n${errors}")
  endif()
  foreach(pattern "# Out of bounds values : 0 OK" "# Avg bus bandwidth    : " "Rank  2 Pid")
    if(NOT table MATCHES "${pattern}")
      message(FATAL_ERROR "bench ${operation} does not print '${pattern}':\n${table}")
    endif()
  endforeach()
  file(READ ${json} text)
  string(JSON rows LENGTH ${text} results)
  string(JSON wrong GET ${text} results 2 in_place wrong)
  if(NOT rows EQUAL 3 OR NOT wrong STREQUAL result_of_wrong)
    message(FATAL_ERROR "bench ${operation}: ${rows} rows, wrong is '${wrong}' in ${text}")
  endif()
endfunction()

run_bench(all_reduce 0)
run_bench(all_reduce 0 -d bfloat16 -o avg)
run_bench(reduce_scatter 0 -d int64 -o max)
run_bench(all_gather 0 -d uint8)
run_bench(broadcast 0 -r 2)
run_bench(all_reduce "" -c 0)  # JSON's null: not checked is not right

# One rank that cannot go on ends all, with the reason.
execute_process(COMMAND ${BEELINE} bench all_reduce --ranks 2 -b 100000G -e 100000G -n 1
                OUTPUT_QUIET ERROR_VARIABLE errors RESULT_VARIABLE status)
if(status EQUAL 0 OR NOT errors MATCHES "rank [01] \\(pid [0-9]+\\) ended with status" OR NOT errors MATCHES "all ranks are stopped")
  message(FATAL_ERROR "more memory than there is gives status ${status}: ${errors}")
endif()
