# Trains a model of pictures with 256 grey levels in FOLDER with LINNET. Its tokens, which PROGRAM prints, are no bytes of text.
file(REMOVE_RECURSE ${FOLDER})
execute_process(COMMAND ${LINNET} train digits --out ${FOLDER} --set data.levels=256 data.size=8 data.labels=false model.layers=1
  model.width=16 model.heads=2 training.steps=1 training.batch=2 training.evaluate_examples=2 training.sample_every=0
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PROGRAM} ${FOLDER} 10 OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output MATCHES "^([0-9]+ )+\n[0-9]+ bytes of state after 10 tokens")
  message(FATAL_ERROR "expected numbers, got ${output}")
endif()
