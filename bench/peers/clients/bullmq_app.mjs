// BullMQ: `bullmq_app.mjs worker SLOTS` and `bullmq_app.mjs client`, with the line protocol of window.py.
// Payload and result are base64 text, because jobs are JSON. Environment: PEER_PORT (Redis), PEER_BYTES, PEER_MODULES.
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const RESULT_BYTES = 1024;
const require = createRequire(process.env.PEER_MODULES + "/");
const { Queue, QueueEvents, Worker } = require("bullmq");
const connection = { host: "127.0.0.1", port: Number(process.env.PEER_PORT), maxRetriesPerRequest: null };
const [mode, slots] = process.argv.slice(2);

async function work() {
  const result = randomBytes(RESULT_BYTES).toString("base64");
  const worker = new Worker(
    "jobs",
    async (job) => {
      Buffer.from(job.data.payload, "base64");
      return result;
    },
    { connection, concurrency: Number(slots) },
  );
  await worker.waitUntilReady();
  console.log("ready");
}

async function serve() {
  const payload = randomBytes(Number(process.env.PEER_BYTES));
  const queue = new Queue("jobs", { connection });
  const events = new QueueEvents("jobs", { connection });
  events.setMaxListeners(0);
  await events.waitUntilReady();

  async function submit() {
    const data = { payload: payload.toString("base64") };
    const job = await queue.add("job", data, { removeOnComplete: { count: 1000 } });
    const result = Buffer.from(await job.waitUntilFinished(events, 30_000), "base64");
    if (result.length !== RESULT_BYTES) throw new Error(`a result of ${result.length} bytes`);
  }

  async function window({ outstanding, jobs, seconds }) {
    const latencies = [];
    const began = performance.now();
    const deadline = began + seconds * 1000;
    let left = jobs;
    async function lane() {
      while (left > 0 && performance.now() < deadline) {
        left -= 1;
        const at = performance.now();
        await submit();
        latencies.push((performance.now() - at) / 1000);
      }
    }
    await Promise.all(Array.from({ length: outstanding }, lane));
    return { seconds: (performance.now() - began) / 1000, latencies };
  }

  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await window(JSON.parse(line))));
  }
  process.exit(0);
}

await (mode === "worker" ? work() : serve());
