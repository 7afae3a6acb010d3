# For a RocksDB that is built from its sources with the plugin in it: link this directory to plugin/polder of the
# sources, and run `make ROCKSDB_PLUGINS=polder` with the PKG_CONFIG_PATH of Polder.

polder_SOURCES = src/append_buffer.cc src/file_system.cc src/files.cc src/register.cc src/status.cc src/uri.cc src/volume.cc src/workers.cc
polder_HEADERS = rocksdb_polder.h
polder_FUNC = register_polder_file_system
polder_LDFLAGS = $(shell pkg-config --libs polder)
polder_CXXFLAGS = $(shell pkg-config --cflags polder)
