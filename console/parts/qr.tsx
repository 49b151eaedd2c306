/** A QR code. Its library is loaded with the first one. */
import { useEffect, useState } from 'preact/hooks';
import { Boundary, useFile } from './boundary.tsx';

export function QrCode(props: { text: string; label: string }) {
  return (
    <Boundary>
      <Picture {...props} />
    </Boundary>
  );
}

function Picture({ text, label }: { text: string; label: string }) {
  const [source, setSource] = useState<string>();
  const qrcode = useFile(() => import('qrcode'))?.default;
  useEffect(() => {
    let isGone = false;
    const draw = async () => {
      if (!qrcode) return;
      const svg = await qrcode.toString(text, { type: 'svg', errorCorrectionLevel: 'Q', margin: 4 });
      if (!isGone) setSource(`data:image/svg+xml,${encodeURIComponent(svg)}`);
    };
    draw();
    return () => {
      isGone = true;
    };
  }, [text, qrcode]);
  return source ? <img class="qr" src={source} alt={label} /> : null;
}
