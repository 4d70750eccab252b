# How a folder of Beeline becomes a library and a test.

find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)

add_library(beeline_flags INTERFACE)
target_include_directories(beeline_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_options(beeline_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wno-sign-conversion
  -Wnon-virtual-dtor -Wold-style-cast -fno-omit-frame-pointer)
target_link_libraries(beeline_flags INTERFACE spdlog::spdlog fmt::fmt Threads::Threads)
if(BEELINE_SANITIZE)
  target_compile_options(beeline_flags INTERFACE -fsanitize=${BEELINE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(beeline_flags INTERFACE -fsanitize=${BEELINE_SANITIZE})
endif()
if(BEELINE_FUZZ)
  # Tests are not fuzzed: no look at which of their branches are taken.
  target_compile_options(beeline_flags INTERFACE
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:BEELINE_TEST_CODE>>>:-fsanitize=fuzzer-no-link>")
endif()

if(BEELINE_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  enable_testing()
endif()

# beeline_folder(NAME [DEPS lib…] [LIBS external…])
#   One static library beeline_NAME of every *.cc below the current folder, and,
#   where there are *_test.cc files, one test program NAME_test of those.
#   SERIAL: no other test may run beside these. HEAVY: as in beeline_test.
#   DEPS are other folders by their short names; LIBS anything CMake can link.
function(beeline_folder name)
  cmake_parse_arguments(ARG "SERIAL;HEAVY" "" "DEPS;LIBS;TEST_LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(TRANSFORM ARG_DEPS PREPEND beeline_)
  if(sources)
    add_library(beeline_${name} STATIC ${sources})
    target_link_libraries(beeline_${name} PUBLIC beeline_flags ${ARG_DEPS} ${ARG_LIBS})
    if(BEELINE_SANITIZE AND ARG_HEAVY)
      target_compile_options(beeline_${name} PRIVATE -O1)
    endif()
  else()
    add_library(beeline_${name} INTERFACE)
    target_link_libraries(beeline_${name} INTERFACE beeline_flags ${ARG_DEPS} ${ARG_LIBS})
  endif()
  if(BEELINE_TESTS AND tests)
    set(kind)
    foreach(property SERIAL HEAVY)
      if(ARG_${property})
        list(APPEND kind ${property})
      endif()
    endforeach()
    beeline_test(${name}_test ${kind} SOURCES ${tests} LIBS beeline_${name} ${ARG_TEST_LIBS})
  endif()
endfunction()

# beeline_test(NAME SOURCES file… LIBS target…): a GoogleTest program; ctest
# sees each of its cases by name. HEAVY: under the sanitizers, running it unoptimised would take longer than
# optimising it.
function(beeline_test name)
  cmake_parse_arguments(ARG "SERIAL;HEAVY" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} beeline_flags GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES BEELINE_TEST_CODE ON)
  # Compiling most tests takes longer than running them.
  if(ARG_HEAVY OR NOT BEELINE_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}:" DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL})
endfunction()
