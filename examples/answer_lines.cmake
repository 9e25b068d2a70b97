# Trains a small model of pairs in FOLDER with LINNET on a few words, and has PROGRAM answer two of them.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(pairs "")
foreach(i RANGE 9)
  string(APPEND pairs "red\trot\nblue\tblau\ngreen\tgrün\nyellow\tgelb\n")
endforeach()
file(WRITE ${FOLDER}/pairs.tsv "${pairs}")
file(WRITE ${FOLDER}/lines.txt "green\nblue\n")
execute_process(COMMAND ${LINNET} train pairs --data pairs.tsv --out run --set model.encoder_layers=${ENCODER_LAYERS} ${SETTINGS}
  --set training.steps=100 --set training.warmup=10 --set training.batch=16 --set data.length=24 WORKING_DIRECTORY ${FOLDER}
  RESULT_VARIABLE status ERROR_VARIABLE error)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "expected exit status 0, got ${status}: ${error}")
endif()
set(ARGUMENTS ${FOLDER}/run)
set(INPUT ${FOLDER}/lines.txt)
set(PATTERN "^grün\nblau\n$")
include(${CMAKE_CURRENT_LIST_DIR}/run_example.cmake)
