/** Reads codes with the camera: by the browser where it can, else by a decoder that is loaded with the first use. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { texts } from '../../words.ts';
import { Button } from '../forms/form.tsx';

/** Milliseconds between two looks at the picture. */
const lookEvery = 150;
/** Pixels of the longer side that the decoder reads. */
const maxSide = 800;

/** Not yet in TypeScript's library. */
interface Detector {
  detect(picture: HTMLVideoElement): Promise<{ rawValue: string }[]>;
}
type DetectorClass = new (options: { formats: string[] }) => Detector;
const { BarcodeDetector } = globalThis as { BarcodeDetector?: DetectorClass };

/** Browsers have a camera for pages that came over TLS, or from this machine. */
export const canScan = (): boolean => navigator.mediaDevices?.getUserMedia !== undefined;

type Look = (video: HTMLVideoElement) => Promise<string | undefined>;

async function makeLook(): Promise<Look> {
  if (BarcodeDetector) {
    const detector = new BarcodeDetector({ formats: ['qr_code', 'data_matrix', 'code_128', 'code_39'] });
    return async (video) => (await detector.detect(video))[0]?.rawValue;
  }
  const { default: decode } = await import('qr/decode.js');
  const canvas = document.createElement('canvas');
  const drawing = canvas.getContext('2d', { willReadFrequently: true });
  return async (video) => {
    const scale = Math.min(1, maxSide / Math.max(video.videoWidth, video.videoHeight));
    canvas.width = Math.round(video.videoWidth * scale);
    canvas.height = Math.round(video.videoHeight * scale);
    if (!drawing || canvas.width === 0) return undefined;
    drawing.drawImage(video, 0, 0, canvas.width, canvas.height);
    try {
      return decode(drawing.getImageData(0, 0, canvas.width, canvas.height));
    } catch {
      // No code is in sight.
      return undefined;
    }
  };
}

/** Shows what the camera sees until it has read a code. */
export function Scan({ onText, onClose }: { onText: (text: string) => void; onClose: () => void }) {
  const video = useRef<HTMLVideoElement>(null);
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    let stream: MediaStream | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const run = async () => {
      const [opened, look] = await Promise.all([
        navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } }),
        makeLook(),
      ]);
      stream = opened;
      const shown = video.current;
      if (isOver || !shown) return stop();
      shown.srcObject = opened;
      await shown.play();
      const next = async () => {
        const text = await look(shown).catch(() => undefined);
        if (isOver) return;
        if (text) onText(text);
        else timer = setTimeout(next, lookEvery);
      };
      await next();
    };
    const stop = () => {
      isOver = true;
      clearTimeout(timer);
      for (const track of stream?.getTracks() ?? []) track.stop();
    };
    run().catch(() => isOver || setFailed(true));
    return stop;
  }, []);
  return (
    <section class="scan" aria-label={texts.scan.title}>
      {failed ? (
        <p class="note warn" role="alert">
          {texts.scan.noCamera}
        </p>
      ) : (
        <>
          <video ref={video} muted playsInline aria-label={texts.scan.picture} />
          <p class="small soft">{texts.scan.hint}</p>
        </>
      )}
      <Button label={texts.scan.type} onClick={onClose} />
    </section>
  );
}
