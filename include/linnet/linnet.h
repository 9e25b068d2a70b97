#pragma once

// All of Linnet.

#include "linnet/attention.h"
#include "linnet/attention_config.h"
#include "linnet/communicator.h"
#include "linnet/dataset.h"
#include "linnet/error.h"
#include "linnet/export.h"
#include "linnet/feature_map.h"
#include "linnet/generation.h"
#include "linnet/instruction_set.h"
#include "linnet/layer_types.h"
#include "linnet/mask.h"
#include "linnet/model.h"
#include "linnet/reference.h"
#include "linnet/run_config.h"
#include "linnet/series.h"
#include "linnet/similarity.h"
#include "linnet/tensor.h"
#include "linnet/tokenizer.h"
#include "linnet/training.h"
#include "linnet/version.h"
