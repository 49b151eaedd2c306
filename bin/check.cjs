/**
 * Runs before the server, the build and the tests: says in one sentence why this Node, or this checkout, cannot run
 * them. The syntax is old, so that a Node that is too old can read it.
 */
'use strict';

var fs = require('fs');
var path = require('path');

var root = path.join(__dirname, '..');
var needed = /(\d+)\.(\d+)/.exec(require('../package.json').engines.node);
var running = /^v(\d+)\.(\d+)/.exec(process.version);
var isCheckout = fs.existsSync(path.join(root, 'tsconfig.build.json'));

function has(file) {
  return fs.existsSync(path.join(root, file));
}

var isOld = running[1] === needed[1] ? Number(running[2]) < Number(needed[2]) : Number(running[1]) < Number(needed[1]);
/** The Node that `npm ci` brings into a checkout. */
var ownNode = path.join(root, 'node_modules', 'node', 'bin', 'node');

function problem(step) {
  if (isOld)
    return (
      'Slipway needs Node ' +
      needed[0] +
      ' or newer; this is Node ' +
      process.version.slice(1) +
      ' (' +
      process.execPath +
      ').\n' +
      (isCheckout
        ? 'Run `npm ci` without --omit=dev and --ignore-scripts: it brings Node 26 into the checkout. Or install a newer Node.'
        : 'Install a newer Node.')
    );
  if (step === 'build' && !has('node_modules/typescript'))
    return (
      'Slipway cannot be built: its development dependencies are not installed.\n' +
      'Run `npm ci` without --omit=dev. To run Slipway without them, install the package that `npm pack` creates.'
    );
  if (step !== 'build' && !has('dist/src/main.js'))
    return 'Slipway is not built: dist/src/main.js does not exist.\nRun `npm ci` without --ignore-scripts, or `npm run build`.';
  return undefined;
}

exports.otherNode = isOld && isCheckout && fs.existsSync(ownNode) ? ownNode : undefined;

var found = exports.otherNode ? undefined : problem(process.argv[1] === __filename ? process.argv[2] : 'run');
if (found) {
  console.error(found);
  process.exit(1);
}
