// A stock gRPC peer in JavaScript: peer.js PROTO server | client ADDRESS. It
// speaks on its standard streams as ../python/peer.py does.
'use strict'

const crypto = require('node:crypto')
const readline = require('node:readline')
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')

const [proto, role, address] = process.argv.slice(2)
const { Echo } = grpc.loadPackageDefinition(loader.loadSync(proto, { keepCase: true, defaults: true })).gdrpc.test.v1

const sha256 = (b) => crypto.createHash('sha256').update(b).digest('hex')

function serve () {
  const server = new grpc.Server()
  server.addService(Echo.service, {
    Declared: ({ request }, reply) => {
      const values = request.gdrpc_attachments
      const seen = { server: 'node', sums: values.map(sha256) }
      const order = JSON.parse(request.text || '{}')
      reply(null, { text: JSON.stringify(seen), gdrpc_attachments: order.bounce ? values : [] })
    },
    Plain: (_, reply) => reply(null, { text: '{"server": "node", "sums": []}' }),
    Chat: (stream) => {
      stream.on('data', (m) => stream.write(m))
      stream.on('end', () => stream.end())
    }
  })
  server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (err, port) => {
    if (err) throw err
    console.log(`127.0.0.1:${port}`)
  })
  process.stdin.resume()
  process.stdin.on('end', () => server.forceShutdown())
}

function call (client, line) {
  const options = { deadline: Date.now() + 20000 }
  if (line.method === 'Chat') {
    return new Promise((resolve, reject) => {
      const stream = client.Chat(options)
      let text = ''
      stream.on('data', (m) => { text += m.text })
      stream.on('end', () => resolve({ text }))
      stream.on('error', reject)
      for (const t of line.text) stream.write({ text: t })
      stream.end()
    })
  }
  const request = { text: line.text, gdrpc_attachments: (line.attachments || []).map((a) => Buffer.from(a, 'hex')) }
  return new Promise((resolve, reject) => {
    client[line.method](request, options, (err, m) => {
      if (err) return reject(err)
      resolve({ text: m.text, attachments: (m.gdrpc_attachments || []).map((b) => b.toString('hex')) })
    })
  })
}

async function run () {
  const client = new Echo(address, grpc.credentials.createInsecure())
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const answer = await call(client, JSON.parse(line)).catch((e) => ({ code: e.code, message: e.details }))
    console.log(JSON.stringify(answer))
  }
  client.close()
}

if (role === 'server') serve()
else run()
