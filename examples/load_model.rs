//! Loads the tensors of a safetensors file, which is mapped into memory, into shared device buffers, with a
//! progress bar.
//!
//!     cargo run --release --example load_model -- model.safetensors
//!
//! Without a file it writes a small one first. All tensors are uploaded at the same time, in pieces that threads of the
//! device copy out of the mapped file: no tensor is read into memory first. Every byte is read back and checked.

#[path = "common/device.rs"]
mod device;
#[path = "common/digest.rs"]
mod digest;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{Either, select, try_join_all};
use half::{bf16, f16};
use headwater::{Device, Error, Pod, Progress, SharedBuffer, Source, Upload};
use indicatif::{ProgressBar, ProgressStyle};
use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};

use digest::Digest;

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

/// The weights of a model, by name.
type Model = BTreeMap<String, Tensor>;

/// Cheap to clone and read without waits: see [`SharedBuffer`].
#[derive(Clone, Debug)]
enum Tensor {
    F32(SharedBuffer<f32>),
    F16(SharedBuffer<f16>),
    Bf16(SharedBuffer<bf16>),
    /// What this example has no type for.
    Bytes(SharedBuffer<u8>),
}

/// Bytes of a mapped file. The file stays mapped for as long as any of them are wanted.
struct Mapped {
    file: Arc<Mmap>,
    at: usize,
    len: usize,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.file[self.at..self.at + self.len]
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Answer<()> {
    let device = device::open()?;
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let path = given.clone().map_or_else(write_one_of_our_own, Ok)?;
    let file = File::open(&path)?;
    #[allow(unsafe_code, reason = "mapping a file vouches for it")]
    // SAFETY: nobody writes to the file while this runs: a model is written once. Whoever runs this keeps to it.
    let file = Arc::new(unsafe { Mmap::map(&file)? });

    let started = Instant::now();
    let model = load(&device, &file).await?;
    let seconds = started.elapsed().as_secs_f64();
    let mib = file.len() as f64 / f64::from(1 << 20);
    println!("{} tensors, {mib:.1} MiB, in {:.1} ms (wall)", model.len(), seconds * 1e3);
    let digest = check(&model, &file).await?;
    println!("every byte is right");
    digest.tell();
    if given.is_none() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Uploads all tensors, and shows how far that is.
async fn load(device: &Device, file: &Arc<Mmap>) -> Answer<Model> {
    let mut progress = Vec::new();
    let mut uploads = Vec::new();
    for (name, view) in SafeTensors::deserialize(file)?.tensors() {
        let at = view.data().as_ptr().addr() - file.as_ptr().addr();
        let mapped = Mapped { file: file.clone(), at, len: view.data().len() };
        let bytes = Source::from_owner(mapped);
        let uploaded = match view.dtype() {
            Dtype::F32 => Uploading::F32(upload(device, bytes, &mut progress)?),
            Dtype::F16 => Uploading::F16(upload(device, bytes, &mut progress)?),
            Dtype::BF16 => Uploading::Bf16(upload(device, bytes, &mut progress)?),
            _ => Uploading::Bytes(upload(device, bytes, &mut progress)?),
        };
        uploads.push(async { Ok::<_, Error>((name, uploaded.tensor().await?)) });
    }
    // All of them are under way: awaiting them is only to know when they are done.
    let loaded = pin!(try_join_all(uploads));
    let shown = pin!(show(&progress));
    match select(loaded, shown).await {
        Either::Left((loaded, _)) => Ok(loaded?.into_iter().collect()),
        Either::Right(((), loaded)) => Ok(loaded.await?.into_iter().collect()),
    }
}

/// Starts the upload of a tensor: bytes of the file, wherever they lie in it, as elements.
fn upload<T: Pod>(
    device: &Device,
    bytes: Source<'static, u8>,
    progress: &mut Vec<Progress>,
) -> Result<Upload<T>, Error> {
    let upload = device.upload(Source::of_bytes(bytes)?);
    progress.push(upload.progress());
    Ok(upload)
}

enum Uploading {
    F32(Upload<f32>),
    F16(Upload<f16>),
    Bf16(Upload<bf16>),
    Bytes(Upload<u8>),
}

impl Uploading {
    async fn tensor(self) -> Result<Tensor, Error> {
        Ok(match self {
            Uploading::F32(upload) => Tensor::F32(upload.await?.into_shared()),
            Uploading::F16(upload) => Tensor::F16(upload.await?.into_shared()),
            Uploading::Bf16(upload) => Tensor::Bf16(upload.await?.into_shared()),
            Uploading::Bytes(upload) => Tensor::Bytes(upload.await?.into_shared()),
        })
    }
}

/// Moves a bar along until everything is there. It is drawn to standard error, where that is a
/// terminal, and wiped at the end.
async fn show(progress: &[Progress]) {
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
    let bar = ProgressBar::new(progress.iter().map(Progress::bytes).sum());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let _wiped = WipedOnDrop(&bar);
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    while bar.length().is_some_and(|bytes| bar.position() < bytes) {
        ticks.tick().await;
        bar.set_position(progress.iter().map(Progress::bytes_done).sum());
    }
}

/// Also where showing is given up, since all is loaded or has failed.
struct WipedOnDrop<'a>(&'a ProgressBar);

impl Drop for WipedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Reads every tensor back and compares its bytes with those of the file.
async fn check(model: &Model, file: &Mmap) -> Answer<Digest> {
    let tensors = SafeTensors::deserialize(file)?;
    assert_eq!(model.len(), tensors.len());
    let mut digest = Digest::new();
    for (name, tensor) in model {
        let view = tensors.tensor(name)?;
        let bytes = match tensor {
            Tensor::F32(x) => x.clone().cast::<u8>()?.to_vec().await?,
            Tensor::F16(x) => x.clone().cast::<u8>()?.to_vec().await?,
            Tensor::Bf16(x) => x.clone().cast::<u8>()?.to_vec().await?,
            Tensor::Bytes(x) => x.to_vec().await?,
        };
        assert!(bytes == view.data(), "{name}: {tensor:?} differs from the file");
        digest = digest.and_words(bytes.into_iter().map(u32::from));
    }
    Ok(digest)
}

/// A file with tensors of several types and sizes, for want of a model.
fn write_one_of_our_own() -> Answer<PathBuf> {
    let numbers = |n: usize| (0..n).map(|i| (i % 1000) as f32 / 1000.0 - 0.5);
    let embedding: Vec<u8> = numbers(512 * 384).flat_map(|x| x.to_le_bytes()).collect();
    let attention: Vec<u8> =
        numbers(3 * 384 * 384).flat_map(|x| f16::from_f32(x).to_le_bytes()).collect();
    let output: Vec<u8> =
        numbers(384 * 512).flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect();
    let tensors = [
        ("embedding.weight", TensorView::new(Dtype::F32, vec![512, 384], &embedding)?),
        ("attention.weight", TensorView::new(Dtype::F16, vec![3 * 384, 384], &attention)?),
        ("output.weight", TensorView::new(Dtype::BF16, vec![384, 512], &output)?),
        ("norm.bias", TensorView::new(Dtype::F32, vec![384], &embedding[..4 * 384])?),
        ("empty", TensorView::new(Dtype::F16, vec![0], &[])?),
    ];
    let name = format!("headwater-load_model-{}.safetensors", std::process::id());
    let path: PathBuf = Path::new(&std::env::temp_dir()).join(name);
    std::fs::write(&path, serialize(tensors, None)?)?;
    Ok(path)
}
