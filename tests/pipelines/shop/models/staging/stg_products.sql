with source as (

    select * from {{ source('raw', 'products') }}

)

select
    id as product_id,
    name as product_name,
    kind as product_type,
    {{ amount('price') }} as price
from source
