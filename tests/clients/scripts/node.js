// What node programs do: the network, workers, children, files, native crypto.
const { execFileSync } = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const { Worker } = require('worker_threads');

console.log(crypto.createHash('sha256').update('slice').digest('hex'));
console.log(execFileSync('echo', ['child']).toString().trim());
console.log(fs.readFileSync(__filename, 'utf8').split('\n')[0]);
new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', { eval: true }).on('message', (answer) => {
  console.log('worker', answer);
  const server = http.createServer((request, response) => response.end('served ' + request.url));
  server.listen(0, '127.0.0.1', () => {
    http.get({ host: '127.0.0.1', port: server.address().port, path: '/page' }, (response) => {
      response.on('data', (data) => console.log(data.toString()));
      response.on('end', () => server.close());
    });
  });
});
