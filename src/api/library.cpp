// libbeeline.so is beeline_api as a whole (see CMakeLists.txt); a shared library needs a source of its own.
