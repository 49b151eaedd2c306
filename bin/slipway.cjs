#!/usr/bin/env node
/**
 * The `slipway` command. A Node that is too old is told so before any module of the service is loaded; in a checkout, which has
 * a Node of its own, that one takes over.
 */
'use strict';

var otherNode = require('./check.cjs').otherNode;

function runWith(node) {
  var args = [__filename].concat(process.argv.slice(2));
  var command = require('child_process').spawn(node, args, { stdio: 'inherit' });
  ['SIGTERM', 'SIGINT', 'SIGHUP'].forEach(function (signal) {
    process.on(signal, function () {
      command.kill(signal);
    });
  });
  command.on('exit', function (code, signal) {
    process.exit(signal ? 1 : code);
  });
}

if (otherNode) runWith(otherNode);
else import('../dist/cli/main.js');
