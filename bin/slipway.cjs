#!/usr/bin/env node
/** The `slipway` command: a Node that is too old is told so before any module of the service is loaded. */
'use strict';

require('./check.cjs');
import('../dist/cli/main.js');
